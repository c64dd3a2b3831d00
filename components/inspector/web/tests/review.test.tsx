import { render } from "preact-render-to-string";
import { expect, test } from "vitest";
import { type Draft, DraftError, editable, readDraft } from "../src/review/editor";
import { type Detail, Item, readArguments } from "../src/review/item";
import {
  begin,
  type Entry,
  endsWithSkip,
  label,
  labelled,
  type Session,
  skip,
  unsaved,
  unskip,
  upcoming,
  withdrawn,
} from "../src/review/session";

const entries = (...values: Array<number | null>): Entry[] =>
  values.map((value, place) => ({ item_id: `i${place}`, kind: "step", episode_id: "e", turn: place, step: 0, value }));
const shown = (session: Session) => session.items[session.at]?.item_id;

test("a session continues at the first item without a label", () => {
  expect(shown(begin(entries(1, 0, null, null)))).toBe("i2");
  expect(shown(begin(entries(1, 0)))).toBeUndefined();
});

test("a label leads to the next item, and the last one to the end", () => {
  const one = label(begin(entries(null, null)), "i0", 1);
  expect([shown(one), labelled(one)]).toEqual(["i1", 1]);
  expect(shown(label(one, "i1", 0))).toBeUndefined();
});

test("what was skipped comes again after all others, in the order of skipping", () => {
  const both = skip(skip(begin(entries(null, null, null))));
  expect(shown(both)).toBe("i2");
  const left = label(both, "i2", 1);
  expect(shown(left)).toBe("i0");
  expect(shown(skip(left))).toBe("i1");
  expect(shown(begin(entries(null, null, null), both.skipped))).toBe("i2"); // the queue is opened once more
});

test("undo returns to what was skipped or labelled last", () => {
  const start = skip(begin(entries(null, null, null)));
  expect(endsWithSkip(start)).toBe(true);
  expect(shown(unskip(start))).toBe("i0");
  const given = label(start, "i1", 1);
  expect(endsWithSkip(given)).toBe(false);
  const back = withdrawn(given, "i1");
  expect([shown(back), labelled(back), endsWithSkip(back)]).toEqual(["i1", 0, true]);
});

test("an item whose label could not be saved comes next, and what is shown stays", () => {
  const later = skip(label(begin(entries(null, null, null, null)), "i0", 1));
  expect(shown(later)).toBe("i2");
  const back = unsaved(later, "i0");
  expect([shown(back), labelled(back), endsWithSkip(back)]).toEqual(["i2", 0, true]);
  expect(shown(label(back, "i2", 0))).toBe("i0");
  expect(shown(unsaved(label(begin(entries(null)), "i0", 1), "i0"))).toBe("i0");
});

test("the next items are known ahead", () => {
  expect(upcoming(begin(entries(1, null, 0, null, null)), 2)).toEqual([1, 3]);
});

const text = (of: string, length = of.length) => ({ text: of, length });
const call = (written: string): Detail["earlier"][number] => ({
  tool: written,
  arguments: text(written),
  parse_error: written,
  result: text(written, 99_999),
  exit_code: 1,
  error: written,
});
const detail = (written: string): Detail => ({
  item_id: "i",
  kind: "step",
  episode_id: written,
  turn: 1,
  step: 0,
  task: text(written),
  earlier: [call(written)],
  earlier_left_out: 3,
  sides: [
    {
      episode_id: "e",
      turns: [
        {
          turn: 1,
          thought: text(written),
          text: text(written),
          calls: [call(written)],
        },
      ],
    },
  ],
  others: [],
});

test("whatever an agent wrote is text and never markup", () => {
  const html = render(<Item detail={detail("<img src=x onerror=alert(1)>\x1b[31m\u202e")} full />);
  for (const live of ["<img", "\x1b", "\u202e"]) expect(html).not.toContain(live);
  expect(html).toContain("&lt;img");
});

test("the arguments of a call are shown by name, and a text in its own lines", () => {
  expect(readArguments('{"path": "a.py", "old": "", "new": "a\\nb", "lines": [1]}')).toEqual([
    ["path", "a.py"],
    ["new", "a\nb"],
    ["lines", "[\n  1\n]"],
  ]);
  for (const other of ['{"path": "a', "[1]", "null", "words"]) expect(readArguments(other)).toBeNull();
});

test("a long text is folded to its beginning and end, and a cut one says so", () => {
  const lines = Array.from({ length: 100 }, (_, place) => `line ${place}`).join("\n");
  const html = render(<Item detail={detail(lines)} full={false} />);
  expect(html).toContain("76 lines folded");
  expect(html).toContain("line 99");
  expect(html).not.toContain("line 50\n");
  expect(html).toContain("of 99999 characters");
  expect(render(<Item detail={detail(lines)} full />)).toContain("line 50\n");
});

const draft = (text: string, ...fields: Array<[name: string, value: string, json: boolean]>): Draft => ({
  text,
  calls: fields.length ? [{ tool: "t", fields: fields.map(([name, value, json]) => ({ name, value, json })) }] : [],
});

test("a form becomes a text and a list of calls: texts as they are written, everything else as JSON", () => {
  expect(readDraft(draft("a"))).toEqual({ text: "a", calls: [] });
  expect(readDraft(draft("", ["x", "[1]", true], ["y", "[1]\n", false])).calls).toEqual([
    { tool: "t", arguments: { x: [1], y: "[1]\n" } },
  ]);
});

test("a wrong form is refused with one line and the name of the field", () => {
  const call = { tool: " ", fields: [] };
  for (const [wrong, field] of [
    [draft(" "), "text"],
    [{ text: "", calls: [call] }, "0.tool"],
    [draft("a", ["", "x", false]), "0.0.name"],
    [draft("a", ["x", "1", true], ["x", "2", true]), "0.1.name"],
    [draft("a", ["x", "1", true], ["lines", "[1", true]), "0.1.value"],
    [draft("a", ["id", "9007199254740993", true]), "0.0.value"],
    [draft("a", ["id", '{"\\"": [-1e300]}', true]), "0.0.value"],
  ] as const) {
    try {
      readDraft(wrong);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(DraftError);
      expect((error as DraftError).field).toBe(field);
      expect((error as DraftError).message).toMatch(/^.+$/);
    }
  }
});

test("only a whole message of a pair can be rewritten", () => {
  const step = detail("{}");
  expect(editable(step)).toBeNull();
  const one = {
    tool: "t",
    arguments: text('{"x": 1, "path": "a.py"}'),
    parse_error: null,
    result: null,
    exit_code: null,
    error: null,
  };
  const side = { episode_id: "e", turns: [{ turn: 1, thought: text(""), text: text("fine"), calls: [one] }] };
  const pair: Detail = { ...step, kind: "pair", sides: [side, side] };
  expect(editable(pair)).toEqual(draft("fine", ["x", "1", true], ["path", "a.py", false]));
  expect(editable({ ...pair, turn: -1 })).toBeNull();
  const of = (call: typeof one) =>
    editable({ ...pair, sides: [{ ...side, turns: [{ ...side.turns[0], calls: [call] } as never] }] });
  expect(of({ ...one, arguments: text('{"x"', 20_000) })).toBeNull();
  expect(of({ ...one, arguments: text('{"id": 9007199254740993}') })).toBeNull();
  expect(
    of({ ...one, arguments: text('{"id": "9007199254740993", "x": 0.1, "y": -9007199254740991}') }),
  ).not.toBeNull();
});
