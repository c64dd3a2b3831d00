/** Inert text: whatever an agent, a tool or a task wrote. It is only ever a text node; what is invisible, moves the cursor or turns
 * the direction of reading is shown as a mark, as `components/reporting/safe_text.py` does. */
import type { ComponentChildren } from "preact";

const MAX_MARKS_ON_A_LETTER = 3;
const ANSI = "\\x1b\\[[0-?]*[ -/]*[@-~]|\\x1b\\][^\\x07\\x1b]{0,999}(?:\\x07|\\x1b\\\\)|\\x1b[@-Z\\\\-_]";
const STACK = `(?<=[\\p{Mn}\\p{Me}]{${MAX_MARKS_ON_A_LETTER}})[\\p{Mn}\\p{Me}]+`;
const INVISIBLE =
  "[\\x00-\\x08\\x0b-\\x1f\\x7f]|[\\x80-\\x9f\\xad\\u115f\\u1160\\u2800\\u3164\\uffa0]|[\\p{Cf}\\p{Cs}\\p{Co}\\p{Cn}\\p{Zl}\\p{Zp}]";
const UNSAFE = new RegExp(`${ANSI}|${STACK}|${INVISIBLE}`, "gu");

/** A text as pieces: plain strings, and marks for what would not be seen or would act. Linear in the length. */
export function pieces(text: string): Array<string | { readonly mark: string }> {
  const plain = text.replaceAll("\r\n", "\n");
  const found: Array<string | { readonly mark: string }> = [];
  let end = 0;
  for (const match of plain.matchAll(UNSAFE)) {
    if (match.index > end) found.push(plain.slice(end, match.index));
    found.push({ mark: visible(match[0]) });
    end = match.index + match[0].length;
  }
  if (end < plain.length) found.push(plain.slice(end));
  return found;
}

/** The same on one plain string, for attributes such as `title`. */
export function plainText(text: string): string {
  return pieces(text)
    .map((piece) => (typeof piece === "string" ? piece : piece.mark))
    .join("");
}

/** Text of unknown origin, inline. `lines={false}` keeps it on one line. */
export function Text({ children, lines = false }: { children: string; lines?: boolean }) {
  const shown = lines ? children : children.replaceAll("\r\n", "\n").replaceAll("\n", "⏎").replaceAll("\t", " ");
  return <bdi>{marked(shown)}</bdi>;
}

export function marked(text: string): ComponentChildren {
  return pieces(text).map((piece) => (typeof piece === "string" ? piece : <span class="mark">{piece.mark}</span>));
}

function visible(run: string): string {
  if (/^[\p{Mn}\p{Me}]/u.test(run)) return `⟨${[...run].length} more marks⟩`;
  return Array.from(run, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return UNSAFE_ALONE.test(character) ? `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩` : character;
  }).join("");
}

const UNSAFE_ALONE = new RegExp(`^(?:${INVISIBLE})$`, "u");
