/** Large texts: folded, fetched by range, and coloured where they are diffs. */
import { diffLines, diffWordsWithSpace } from "diff";
import { useState } from "preact/hooks";
import { count, isCut } from "./format";
import { marked } from "./text";

const FOLDED_LINES = 14;
const FOLDED_CHARACTERS = 2_000;
const PIECE = 65_536;
const UNIFIED = /^(?:diff --git |--- .*\n\+\+\+ |@@ -\d)/m;

/** A block of inert text. `length`: that of the whole text in characters, where `text` is only its beginning; `load` gives a piece of it. */
export function Block({
  text,
  length: whole,
  load,
  label,
}: {
  text: string;
  length?: number;
  load?: (offset: number, length: number) => Promise<string>;
  label: string;
}) {
  const length = whole ?? text.length;
  const partial = whole !== undefined && isCut(text, whole);
  const lines = text.split("\n");
  const long = length > FOLDED_CHARACTERS || lines.length > FOLDED_LINES;
  const [open, setOpen] = useState(false);
  const [piece, setPiece] = useState<{ offset: number; text: string } | null>(null);
  const [problem, setProblem] = useState("");
  const shown =
    piece?.text ?? (long && !open ? lines.slice(0, FOLDED_LINES).join("\n").slice(0, FOLDED_CHARACTERS) : text);
  const at = piece?.offset ?? 0;
  const turn = (offset: number) => {
    setProblem("");
    load?.(offset, PIECE).then(
      (found) => setPiece({ offset, text: found }),
      (error: unknown) => setProblem(String(error instanceof Error ? error.message : error)),
    );
  };
  return (
    <div class="block">
      <pre class={open || piece ? "open" : ""} tabIndex={open || piece ? 0 : undefined} aria-label={label} role="group">
        {UNIFIED.test(shown) ? <Unified text={shown} /> : marked(shown)}
        {shown.length < text.length && !piece && "…"}
      </pre>
      {long && (
        <div class="block-more">
          {!piece && (
            <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
              {open
                ? "Fold"
                : partial
                  ? `Show the first ${count(text.length)} characters`
                  : `Show all ${count(lines.length)} lines`}
            </button>
          )}
          {partial && load && (
            <>
              {piece && (
                <button type="button" class="quiet" disabled={at === 0} onClick={() => turn(Math.max(0, at - PIECE))}>
                  ← Earlier
                </button>
              )}
              <button
                type="button"
                class="quiet"
                disabled={piece !== null && at + PIECE >= length}
                onClick={() => turn(piece ? at + PIECE : 0)}
              >
                {piece ? "Later →" : "Read it by pieces"}
              </button>
              {piece && (
                <button
                  type="button"
                  class="quiet"
                  disabled={at + PIECE >= length}
                  onClick={() => turn(Math.floor((length - 1) / PIECE) * PIECE)}
                >
                  End
                </button>
              )}
              <span class="soft">
                {piece ? `${count(at)} to ${count(Math.min(length, at + PIECE))} of ` : ""}
                {count(length)} characters
              </span>
            </>
          )}
          {problem && <span class="error">{problem}</span>}
        </div>
      )}
    </div>
  );
}

/** A unified diff with coloured lines. */
function Unified({ text }: { text: string }) {
  return (
    <>
      {text.split("\n").map((line, index) => (
        <span key={index} class={lineKind(line)}>
          {marked(line)}
          {"\n"}
        </span>
      ))}
    </>
  );
}

export function lineKind(line: string): string {
  if (line.startsWith("@@") || line.startsWith("diff --git")) return "hunk";
  if (line.startsWith("+++") || line.startsWith("---")) return "file";
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
}

const CONTEXT = 3;
const LARGEST_DIFF = 200_000;

/** What an edit changes, line by line: unchanged lines far from a change are left out. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  if (before.length + after.length > LARGEST_DIFF) return <Block text={after} label={label} />;
  const rows = diffRows(before, after);
  return (
    <pre class="open" tabIndex={0} role="group" aria-label={label}>
      {rows.map(([kind, line], index) => (
        <span key={index} class={kind}>
          {SIGNS[kind]}
          {marked(line)}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

const SIGNS = { added: "+ ", removed: "- ", "": "  ", hunk: "" } as const;
type Kind = keyof typeof SIGNS;

/** Lines of a diff with their kind; `hunk` counts unchanged lines that are left out. */
export function diffRows(before: string, after: string): Array<readonly [Kind, string]> {
  const rows: Array<readonly [Kind, string]> = [];
  const parts = diffLines(before, after);
  for (const [index, part] of parts.entries()) {
    const lines = part.value.replace(/\n$/, "").split("\n");
    if (part.added || part.removed) {
      rows.push(...lines.map((line) => [part.added ? "added" : "removed", line] as const));
      continue;
    }
    const head = index === 0 ? 0 : CONTEXT;
    const tail = index === parts.length - 1 ? 0 : CONTEXT;
    const left = lines.length - head - tail;
    const hidden = left > 1 ? left : 0;
    const plain = (some: readonly string[]) => rows.push(...some.map((line) => ["", line] as const));
    if (!hidden) plain(lines);
    else {
      plain(lines.slice(0, head));
      rows.push(["hunk", `⋯ ${hidden} unchanged lines`]);
      plain(lines.slice(lines.length - tail));
    }
  }
  return rows;
}

const NEAR = 24;

/** A short text with what it does not share with another marked, and long shared parts left out. */
export function Compared({ text, other }: { text: string; other: string | undefined }) {
  if (other === undefined || other === text) return <>{marked(text)}</>;
  const parts = diffWordsWithSpace(other, text).filter((part) => !part.removed);
  return (
    <>
      {parts.map((part, index) => {
        if (part.added) return <ins key={index}>{marked(part.value)}</ins>;
        const shared = part.value;
        if (shared.length <= 3 * NEAR) return marked(shared);
        const head = index === 0 ? "" : shared.slice(0, NEAR);
        const tail = index === parts.length - 1 ? "" : shared.slice(-NEAR);
        return <span key={index}>{marked(`${head} … ${tail}`)}</span>;
      })}
    </>
  );
}
