/** The keyboard: one table of keys for each view that is open, and the help that lists them. */
import { useEffect, useRef, useState } from "preact/hooks";

/** A key, or a sequence such as `g f`, with what it does and its words in the help. */
export type Keys = Readonly<Record<string, readonly [does: () => void, words: string]>>;

const tables: Array<{ current: Keys }> = [];
const OFF = "ratchet.keys-off";
const SEQUENCE_MS = 1200;
let first = "";
let firstAt = 0;

/** Keys of a component for as long as it is shown. The component that was shown last comes first. */
export function useKeys(keys: Keys): void {
  const table = useRef(keys);
  table.current = keys;
  useEffect(() => {
    tables.push(table);
    return () => void tables.splice(tables.indexOf(table), 1);
  }, []);
}

function lookUp(key: string): (() => void) | undefined {
  return tables.findLast((table) => key in table.current)?.current[key]?.[0];
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

function onKey(event: KeyboardEvent): void {
  // During composition (Chinese, Japanese) Enter and Escape are keys of the input method.
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") (event.target as HTMLElement).blur();
    return;
  }
  // Enter is for what has the focus, until j or k moves on (below).
  const focused = (event.target as HTMLElement).closest?.<HTMLElement>("a, button, summary");
  if (event.key === "Enter" && focused) return;
  const off = localStorage.getItem(OFF) === "1";
  if ((off && event.key.length === 1) || (event.target as HTMLElement).closest?.("dialog")) return;
  const sequence = first && event.timeStamp - firstAt < SEQUENCE_MS ? `${first} ${event.key}` : event.key;
  const does = lookUp(sequence) ?? lookUp(event.key);
  const begins = tables.some((table) => Object.keys(table.current).some((key) => key.startsWith(`${event.key} `)));
  [first, firstAt] = !does && begins ? [event.key, event.timeStamp] : ["", 0];
  if (!does) return;
  event.preventDefault();
  if (/^[jk]$/i.test(event.key)) focused?.blur();
  // A key that is held down moves on, and decides nothing: it would label steps that nobody has seen.
  if (!event.repeat || /^[jk]$/i.test(event.key)) does();
}

/** Listen for keys, and show the help on `?`. */
export function Keyboard() {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useKeys({ "?": [() => setOpen(true), "this help"] });
  return open ? <Help close={() => setOpen(false)} /> : null;
}

function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [off, setOff] = useState(localStorage.getItem(OFF) === "1");
  useEffect(() => dialog.current?.showModal(), []);
  const all = new Map(tables.flatMap((table) => Object.entries(table.current).map(([key, [, words]]) => [key, words])));
  return (
    <dialog ref={dialog} class="help" aria-label="Keys" onClose={close}>
      <h2>Keys</h2>
      <dl class="keys">
        {[...all].map(([key, words]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((part) => (
                <kbd key={part}>{NAMES[part] ?? part}</kbd>
              ))}
            </dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
      <label>
        <input
          type="checkbox"
          checked={off}
          onChange={(event) => {
            setOff(event.currentTarget.checked);
            localStorage.setItem(OFF, event.currentTarget.checked ? "1" : "0");
          }}
        />{" "}
        turn off keys that are single letters
      </label>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

const NAMES: Record<string, string> = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };
