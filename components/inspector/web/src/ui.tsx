/** Small parts that all views share. */
import { type ComponentChildren, createContext } from "preact";
import type { ApiError } from "./api/client";
import { bytes, cut, exact } from "./format";
import { plainText, Text } from "./text";

/** Whether nights and builds of a clone are served: without them there are no datasets to lead to. */
export const Clone = createContext(true);

export type Value = number | null | undefined;

/** A number of the tables. Null is not zero: it is shown as a dash. `value` of the element is always exact. */
export function Num({ value, digits }: { value: Value; digits?: number }) {
  if (value === null || value === undefined)
    return (
      <span class="num none" title="no value">
        –
      </span>
    );
  return (
    <data class="num" value={exact(value)} title={exact(value)}>
      {cut(value, digits)}
    </data>
  );
}

/** A reward in [0, 1] as a bar beside its number; a negative one grows to the left of its zero. */
export function Reward({ value, label, title }: { value: Value; label?: string; title?: string }) {
  const known = value !== null && value !== undefined;
  return (
    <span class={`reward ${known ? tone(value) : "none"}`} title={title && plainText(title)}>
      {label && (
        <span class="reward-label">
          <Text>{label}</Text>
        </span>
      )}
      <span class="bar" aria-hidden="true">
        {known && <span style={{ inlineSize: `${Math.min(1, Math.abs(value)) * 100}%` }} />}
      </span>
      <Num value={value} />
    </span>
  );
}

/** `low`, `middle` or `high` for a reward in [0, 1]. */
export function tone(value: Value): string {
  if (value === null || value === undefined) return "none";
  return value >= 0.75 ? "high" : value >= 0.4 ? "middle" : "low";
}

const OUTCOMES = {
  success: ["✓", "success", "good"],
  failure: ["✗", "failure", "bad"],
  unknown: ["?", "unknown", "none"],
} as const;

/** Success, failure or unknown: a sign and a word, not only a colour. */
export function Outcome({
  success,
  failure,
}: {
  success: boolean | null | undefined;
  failure?: string | null | undefined;
}) {
  const [sign, word, kind] = OUTCOMES[success === true ? "success" : success === false ? "failure" : "unknown"];
  const shown = failure === "infrastructure" ? "infrastructure" : word;
  return (
    <span class={`badge ${failure === "infrastructure" ? "warn" : kind}`}>
      <span aria-hidden="true">{failure === "infrastructure" ? "⚠" : sign}</span> {shown}
    </span>
  );
}

export function Badge({ kind = "", children, title }: { kind?: string; children: string; title?: string }) {
  return (
    <span class={`badge ${kind}`} title={title && plainText(title)}>
      <Text>{children}</Text>
    </span>
  );
}

/** Names and values, side by side. Those without a value are left out. */
export function Facts({ of }: { of: ReadonlyArray<readonly [name: string, value: ComponentChildren]> }) {
  const known = of.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return (
    <dl class="facts">
      {known.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" ? <Text>{value}</Text> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Problem({ error }: { error: ApiError | undefined }) {
  return error ? (
    <p class="error" role="alert">
      <Text>{error.message}</Text>
    </p>
  ) : null;
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="soft" role="status">
      Loading {what} …
    </p>
  );
}

export function Size({ value }: { value: number }) {
  return <span title={`${value} bytes`}>{bytes(value)}</span>;
}
