/** One item of a queue: the task, what happened before, and the step or the two sides of a pair. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Answer } from "../api/client";
import { isCut, plural } from "../format";
import { link } from "../route";
import { marked, Text } from "../text";
import { Badge } from "../ui";

export type Detail = Answer<"/api/review/items/{item_id}">;
type Side = Detail["sides"][number];
type Turn = Side["turns"][number];
type Call = Turn["calls"][number];
type Cut = Call["arguments"];

const LINES = 24;
/** Characters of an argument that stands in one line with its name. */
const SHORT = 80;

/** `editor` stands in the place of the better side. */
export function Item({ detail, full, editor }: { detail: Detail; full: boolean; editor?: ComponentChildren }) {
  const pair = detail.kind === "pair";
  const judged = useRef<HTMLDivElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it comes into view once for each item, and when the editor opens
  useLayoutEffect(() => {
    const box = judged.current;
    if (box && box.getBoundingClientRect().bottom > innerHeight) box.scrollIntoView({ block: "start" });
  }, [detail.item_id, editor === undefined]);
  const where =
    detail.turn < 0 ? "whole episodes" : pair ? `turn ${detail.turn}` : `turn ${detail.turn}, step ${detail.step}`;
  return (
    <article
      class={pair ? "review-item" : "review-item review-beside"}
      aria-label={`${pair ? "Pair" : "Step"}: ${where}`}
    >
      <h2>
        {pair ? "Is the first side better? " : "Is this step right? "}
        <span class="soft">{where}</span>
      </h2>
      <div class="review-context">
        <Shown of={detail.task} label="Task" full={full} />
        {detail.earlier.length > 0 && (
          <details class="review-earlier" open>
            <summary>
              {plural(detail.earlier.length + detail.earlier_left_out, "step")} before
              {detail.earlier_left_out > 0 && `, the last ${detail.earlier.length} here`}
            </summary>
            {detail.earlier.map((call, place) => (
              <OneCall key={`${place}`} call={call} full={full} />
            ))}
          </details>
        )}
      </div>
      <div ref={judged} class={pair ? "review-sides" : "review-step"} tabIndex={pair ? undefined : 0}>
        {detail.sides.map((side, place) => (
          <section
            key={side.episode_id}
            aria-label={pair ? (place === 0 ? "Proposed as better" : "Proposed as worse") : "Step"}
          >
            {pair && <h3>{place === 0 ? "Proposed as better" : "Proposed as worse"}</h3>}
            {(place === 0 && editor) || side.turns.map((turn) => <OneTurn key={turn.turn} turn={turn} full={full} />)}
          </section>
        ))}
      </div>
      <a class="soft" href={link(["episode", detail.episode_id])}>
        The whole episode (shows how it ended)
      </a>
    </article>
  );
}

function OneTurn({ turn, full }: { turn: Turn; full: boolean }) {
  return (
    <div class="review-turn">
      {turn.thought.text && <Shown of={turn.thought} label="Thought" full={full} />}
      {turn.text.text && <Shown of={turn.text} label="Text" full={full} />}
      {turn.calls.map((call, place) => (
        <OneCall key={`${place}`} call={call} full={full} />
      ))}
    </div>
  );
}

function OneCall({ call, full }: { call: Call; full: boolean }) {
  const exit = call.exit_code;
  return (
    <>
      <h4>
        <code>
          <Text>{call.tool || "(unreadable)"}</Text>
        </code>{" "}
        {exit !== null && <Badge kind={exit === 0 ? "good" : "bad"}>{`exit ${exit}`}</Badge>}
        {call.parse_error !== null && <Badge kind="bad">{call.parse_error}</Badge>}
        {call.error !== null && <Badge kind="bad">{call.error}</Badge>}
      </h4>
      <Arguments of={call.arguments} full={full} />
      {call.result && <Shown of={call.result} label="Result" full={full} />}
    </>
  );
}

/** The arguments of a call by name, texts with their own lines; as it is where it is no whole JSON. */
function Arguments({ of, full }: { of: Cut; full: boolean }) {
  const named = readArguments(of.text);
  if (!named) return <Shown of={of} label="Arguments" full={full} />;
  return (
    <>
      {named.map(([name, value]) =>
        value.length > SHORT || value.includes("\n") ? (
          <Shown key={name} of={{ text: value, length: 0 }} label={name} full={full} />
        ) : (
          <p key={name} class="review-short">
            <span class="soft">
              <Text>{name}</Text>
            </span>{" "}
            <code>
              <Text>{value}</Text>
            </code>
          </p>
        ),
      )}
    </>
  );
}

/** Names and values of a JSON object; null where the text is none, or was cut. */
export function readArguments(text: string): ReadonlyArray<readonly [name: string, value: string]> | null {
  try {
    const read: unknown = JSON.parse(text);
    if (typeof read !== "object" || read === null || Array.isArray(read)) return null;
    return Object.entries(read)
      .filter(([, value]) => value !== "")
      .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)] as const);
  } catch {
    return null;
  }
}

/** A text as it was written, inert; a long one folded to its beginning and end. */
function Shown({ of, label, full }: { of: Cut; label: string; full: boolean }) {
  const lines = of.text.split("\n");
  const folded = !full && lines.length > LINES;
  const head = Math.ceil((LINES * 2) / 3);
  const text = folded ? [...lines.slice(0, head), "…", ...lines.slice(head - LINES)].join("\n") : of.text;
  return (
    <figure class="review-text">
      <figcaption class="soft">
        <Text>{label}</Text>
        {folded && ` · ${lines.length - LINES} lines folded`}
        {isCut(of.text, of.length) && ` · the first ${of.text.length} of ${of.length} characters`}
      </figcaption>
      <pre class="open">{marked(text)}</pre>
    </figure>
  );
}
