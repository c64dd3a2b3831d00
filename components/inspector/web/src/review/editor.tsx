/** The better message of a pair as a form: its text, and for each call the tool and the arguments by name. */
import { useEffect, useRef, useState } from "preact/hooks";
import { isCut } from "../format";
import { Text } from "../text";
import type { Detail } from "./item";

export type Edit = { text: string; calls: ReadonlyArray<{ tool: string; arguments: Record<string, unknown> }> };
/** An argument as it is written: `json` or plain text. */
type Field = { name: string; value: string; json: boolean };
/** What stands in the form. A checked draft is an `Edit`. */
export type Draft = { text: string; calls: ReadonlyArray<{ tool: string; fields: readonly Field[] }> };

/** What is wrong in a draft, and the name of the form's field where it is. */
export class DraftError extends Error {
  constructor(
    readonly field: string,
    message: string,
  ) {
    super(message);
  }
}

/** Whether JSON holds an integer that JavaScript would round, such as a long id. */
function rounded(json: string): boolean {
  const numbers = json.replace(/"(?:\\.|[^"\\])*"/g, "").match(/-?\d[\d.eE+-]*/g) ?? [];
  return numbers.some((number) => Number.isInteger(Number(number)) && !Number.isSafeInteger(Number(number)));
}

/** The message of the better side; null where it cannot be edited: a whole episode, a text that was cut, a number too long. */
export function editable(detail: Detail): Draft | null {
  const turn = detail.sides[0]?.turns[0];
  if (detail.kind !== "pair" || detail.turn < 0 || !turn) return null;
  const whole = ({ text, length }: { text: string; length: number }) => !isCut(text, length);
  if (!whole(turn.text) || !turn.calls.every((call) => whole(call.arguments))) return null;
  if (turn.calls.some((call) => call.parse_error === null && rounded(call.arguments.text))) return null;
  const calls = turn.calls
    .filter((call) => call.parse_error === null)
    .map((call) => ({ tool: call.tool, fields: fieldsOf(JSON.parse(call.arguments.text)) }));
  return { text: turn.text.text, calls };
}

function fieldsOf(values: Record<string, unknown>): Field[] {
  return Object.entries(values).map(([name, value]) => {
    const json = typeof value !== "string";
    return { name, value: json ? JSON.stringify(value, null, 2) : value, json };
  });
}

/** The message of a draft. Raises DraftError for the first field that is wrong. */
export function readDraft({ text, calls }: Draft): Edit {
  if (!text.trim() && calls.length === 0) throw new DraftError("text", "The message has neither text nor a call");
  const read = calls.map(({ tool, fields }, call) => {
    if (!tool.trim()) throw new DraftError(`${call}.tool`, `Call ${call + 1} has no tool`);
    const values = new Map<string, unknown>();
    for (const [place, { name, value, json }] of fields.entries()) {
      const wrong = (field: string, words: string) =>
        new DraftError(`${call}.${place}.${field}`, `Call ${call + 1}, ${words}`);
      if (!name) throw wrong("name", `argument ${place + 1} has no name`);
      if (values.has(name)) throw wrong("name", `the argument ${name} is there twice`);
      if (json && rounded(value)) throw wrong("value", `${name} has a number that is too long for this page`);
      try {
        values.set(name, json ? JSON.parse(value) : value);
      } catch (error) {
        throw wrong("value", `${name} is not JSON: ${error instanceof Error ? error.message : error}`);
      }
    }
    return { tool: tool.trim(), arguments: Object.fromEntries(values) };
  });
  return { text, calls: read };
}

const LONGEST = 24;

export function Editor({
  first,
  save,
  close,
}: {
  first: Draft;
  save: (edit: Edit, draft: Draft) => void;
  close: () => void;
}) {
  const [unchanged] = useState(first);
  const [draft, setDraft] = useState(unchanged);
  const [wrong, setWrong] = useState<{ field: string; message: string }>();
  const form = useRef<HTMLFieldSetElement>(null);
  const focus = (field: string) => form.current?.querySelector<HTMLElement>(`[name="${field}"]`)?.focus();
  // biome-ignore lint/correctness/useExhaustiveDependencies: once, when the form opens
  useEffect(() => focus("text"), []);
  const submit = () => {
    try {
      save(readDraft(draft), draft);
    } catch (error) {
      if (!(error instanceof DraftError)) throw error;
      setWrong(error);
      focus(error.field);
    }
  };
  const leave = () => {
    const message = "Escape again drops your changes, Ctrl+Enter accepts the pair with them";
    if (draft === unchanged || wrong?.message === message) close();
    else setWrong({ field: "", message });
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const change = (to: Partial<Draft>) => {
    setDraft({ ...draft, ...to });
    setWrong(undefined);
  };
  const put = (place: number, to: Partial<Draft["calls"][number]>) =>
    change({ calls: draft.calls.map((call, at) => (at === place ? { ...call, ...to } : call)) });
  const drop = (to: Draft["calls"]) => {
    change({ calls: to });
    focus("text"); // the button that had it is gone
  };
  return (
    <fieldset ref={form} class="review-editor" onKeyDown={onKey}>
      <legend>Rewrite the better message</legend>
      <Area name="text" label="Text" value={draft.text} wrong={wrong} change={(text) => change({ text })} />
      {draft.calls.map((call, place) => {
        const set = (at: number, to: Partial<Field>) =>
          put(place, { fields: call.fields.map((field, each) => (each === at ? { ...field, ...to } : field)) });
        return (
          <fieldset key={`${place}`}>
            <legend>Call {place + 1}</legend>
            <label class="row">
              Tool
              <input
                type="text"
                class="mono"
                name={`${place}.tool`}
                aria-invalid={wrong?.field === `${place}.tool`}
                value={call.tool}
                onInput={(event) => put(place, { tool: event.currentTarget.value })}
              />
              <button
                type="button"
                class="quiet push"
                onClick={() => drop(draft.calls.filter((_, at) => at !== place))}
              >
                remove call {place + 1}
              </button>
            </label>
            {call.fields.map((field, at) => (
              <Argument
                key={`${at}`}
                name={`${place}.${at}`}
                of={field}
                wrong={wrong}
                change={(to) => set(at, to)}
                drop={() => {
                  const fields = call.fields.filter((_, each) => each !== at);
                  drop(draft.calls.map((each, other) => (other === place ? { ...each, fields } : each)));
                }}
              />
            ))}
            <button
              type="button"
              class="quiet"
              onClick={() => put(place, { fields: [...call.fields, { name: "", value: "", json: false }] })}
            >
              add an argument
            </button>
          </fieldset>
        );
      })}
      <div class="review-editor-end">
        {wrong && (
          <p class="error" role="alert">
            <Text>{wrong.message}</Text>
          </p>
        )}
        <div class="row">
          <button
            type="button"
            class="quiet"
            onClick={() => change({ calls: [...draft.calls, { tool: "", fields: [] }] })}
          >
            add a call
          </button>
          <span class="push" />
          <button type="button" class="quiet" onClick={leave}>
            <kbd>Esc</kbd> leave
          </button>
          <button type="button" onClick={submit}>
            <kbd>Ctrl</kbd> <kbd>Enter</kbd> accept with this message
          </button>
        </div>
      </div>
    </fieldset>
  );
}

type Wrong = { field: string; message: string } | undefined;

function Argument({
  name,
  of,
  wrong,
  change,
  drop,
}: {
  name: string;
  of: Field;
  wrong: Wrong;
  change: (to: Partial<Field>) => void;
  drop: () => void;
}) {
  return (
    <div class="review-argument">
      <div class="row">
        <input
          type="text"
          class="mono"
          name={`${name}.name`}
          aria-label="Name of the argument"
          placeholder="name"
          aria-invalid={wrong?.field === `${name}.name`}
          value={of.name}
          onInput={(event) => change({ name: event.currentTarget.value })}
        />
        <label>
          <input
            type="checkbox"
            checked={of.json}
            onChange={(event) => change({ json: event.currentTarget.checked })}
          />{" "}
          JSON
        </label>
        <button type="button" class="quiet push" aria-label={`remove the argument ${of.name}`} onClick={drop}>
          remove
        </button>
      </div>
      <Area
        name={`${name}.value`}
        label={`Value of ${of.name}`}
        hidden
        value={of.value}
        wrong={wrong}
        change={(value) => change({ value })}
      />
    </div>
  );
}

/** A text that grows with its lines. `hidden`: its label is only for screen readers. */
function Area({
  name,
  label,
  hidden = false,
  value,
  wrong,
  change,
}: {
  name: string;
  label: string;
  hidden?: boolean;
  value: string;
  wrong: Wrong;
  change: (to: string) => void;
}) {
  return (
    <label>
      <span class={hidden ? "hidden" : ""}>{label}</span>
      <textarea
        name={name}
        class={hidden ? "mono" : ""}
        rows={Math.min(LONGEST, value.split("\n").length + (hidden ? 0 : 1))}
        spellcheck={!hidden}
        aria-invalid={wrong?.field === name}
        value={value}
        onInput={(event) => change(event.currentTarget.value)}
      />
    </label>
  );
}
