import { render } from "preact-render-to-string";
import { expect, test } from "vitest";
import { Block, diffRows } from "../src/content";
import { pieces, plainText, Text } from "../src/text";

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;

test("ordinary text in any script is left as it is", () => {
  for (const text of ["plain", "naïve — “quoted”", "日本語", "שלום", "🙂", "tab\tand\nnewline"])
    expect(pieces(text)).toEqual([text]);
});

test("escape sequences of terminals are one mark each, and nothing of them acts", () => {
  expect(pieces("\x1b[31mred\x1b[0m")).toEqual([{ mark: "␛[31m" }, "red", { mark: "␛[0m" }]);
  expect(pieces("\x1b]8;;https://evil.example\x07link")).toEqual([{ mark: "␛]8;;https://evil.example␇" }, "link"]);
});

test.each([
  ["\u202egnp.exe\u202c", "⟨U+202E⟩gnp.exe⟨U+202C⟩"],
  ["zero\u200bwidth\ufeff\u00ad\u2060", "zero⟨U+200B⟩width⟨U+FEFF⟩⟨U+00AD⟩⟨U+2060⟩"],
  ["nul\x00 bell\x07 del\x7f", "nul␀ bell␇ del␡"],
  ["\u2028\u2029\u0085\u3164", "⟨U+2028⟩⟨U+2029⟩⟨U+0085⟩⟨U+3164⟩"],
  ["\udc00 half", "⟨U+DC00⟩ half"],
  ["a\r\nb\rc", "a\nb␍c"],
  ["tag\u{e0041}", "tag⟨U+E0041⟩"],
])("what is invisible or turns the direction of reading is seen: %j", (text, shown) => {
  expect(plainText(text)).toBe(shown);
  expect(shown.replaceAll("\n", "")).not.toMatch(HIDDEN);
});

test("a pile of marks on a letter is cut", () => {
  expect(plainText(`z${"\u0301".repeat(400)}!`)).toBe(`z${"\u0301".repeat(3)}⟨397 more marks⟩!`);
});

test.each(["\x1b[", "\u0301", "\x1b]"])(
  "the time for nothing but %j grows with its length, not with the square",
  (part) => {
    const fastest = (length: number) =>
      Math.min(
        ...[1, 2, 3].map(() => {
          const begun = performance.now();
          pieces(part.repeat(length));
          return performance.now() - begun;
        }),
      );
    expect(fastest(60_000)).toBeLessThan(100 * fastest(3_000)); // 20 times the length: the square would be 400
  },
);

test("markup stays text in elements and in attributes", () => {
  const evil = `</pre><img src=x onerror="alert(1)">`;
  expect(render(<Text>{evil}</Text>)).not.toContain("<img");
  expect(render(<Block text={evil} label={evil} />)).not.toContain("<img");
});

test("a long text is folded, with the number of its lines", () => {
  const shown = render(<Block text={"line\n".repeat(20_000)} label="output" />);
  expect(shown).toContain("Show all 20,001 lines");
  expect(shown.length).toBeLessThan(2_000);
});

test("a diff keeps three lines of context and counts the others", () => {
  const before = Array.from({ length: 30 }, (_, line) => `line ${line}`).join("\n");
  const rows = diffRows(before, before.replace("line 15", "other"));
  expect(rows.map(([kind]) => kind)).toEqual(["hunk", "", "", "", "removed", "added", "", "", "", "hunk"]);
  expect(rows[0]).toEqual(["hunk", "⋯ 12 unchanged lines"]);
});

test("a diff of equal texts has no changed line", () => {
  expect(diffRows("a\nb", "a\nb").filter(([kind]) => kind === "added" || kind === "removed")).toEqual([]);
});

test("the beginning of a text of many emoji is no whole text", () => {
  const load = async () => "";
  const beginning = "🙂".repeat(9_000);
  expect(render(<Block text={beginning} length={15_000} load={load} label="output" />)).toContain("Read it by pieces");
  for (const length of [undefined, 9_000])
    expect(render(<Block text={beginning} {...(length && { length })} load={load} label="output" />)).not.toContain(
      "pieces",
    );
});
