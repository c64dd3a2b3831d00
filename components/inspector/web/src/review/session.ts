/** The place of a reviewer in a queue: which item is shown, which were skipped, and what undo returns to. Values, no effects. */
import type { Answer } from "../api/client";

export type QueueName = "steps" | "pairs" | "disputes";
export type Entry = Answer<"/api/review/queues/{name}">[number];

export type Session = {
  readonly items: readonly Entry[];
  /** The item that is shown; `items.length` when none is left. */
  readonly at: number;
  /** Items that were skipped, the latest last. They come again when all others are labelled. */
  readonly skipped: readonly string[];
  /** What `undo` takes back, the latest last: a skip here, a label on the server. */
  readonly done: ReadonlyArray<"skip" | "label">;
};

/** `skipped`: what was skipped when the queue was last shown. */
export function begin(items: readonly Entry[], skipped: readonly string[] = []): Session {
  return next({ items, at: items.length, skipped, done: [] });
}

/** The next item without a label, in the order of the queue; those that were skipped come last, the earliest first. */
function next(session: Session): Session {
  const open = upcoming(session, 1);
  return { ...session, at: open[0] ?? session.items.length };
}

/** The places of the next `many` items. */
export function upcoming({ items, skipped }: Session, many: number): number[] {
  const open = items.map((_, place) => place).filter((place) => items[place]?.value === null);
  const later = (place: number) => skipped.indexOf(items[place]?.item_id ?? "");
  return open.sort((one, other) => later(one) - later(other) || one - other).slice(0, many);
}

export function label(session: Session, id: string, value: number): Session {
  const skipped = session.skipped.filter((each) => each !== id);
  return next({ ...valued(session, id, value), skipped, done: [...session.done, "label"] });
}

export function skip(session: Session): Session {
  const item = session.items[session.at];
  if (!item || item.value !== null) return next(session);
  const skipped = [...session.skipped.filter((each) => each !== item.item_id), item.item_id];
  return next({ ...session, skipped, done: [...session.done, "skip"] });
}

/** Whether the latest action was a skip, which the server knows nothing of. */
export function endsWithSkip(session: Session): boolean {
  return session.done.at(-1) === "skip";
}

/** Return to the item that was skipped last. */
export function unskip(session: Session): Session {
  const id = session.skipped.at(-1) ?? "";
  return show({ ...session, skipped: session.skipped.slice(0, -1), done: session.done.slice(0, -1) }, id);
}

/** Return to the item whose label was withdrawn. */
export function withdrawn(session: Session, id: string): Session {
  return show(unlabelled(session, id), id);
}

/** The item whose label could not be saved comes next. The shown one stays: it is being read, or its key is being pressed. */
export function unsaved(session: Session, id: string): Session {
  const back = unlabelled(session, id);
  return back.items[back.at] ? back : next(back);
}

function unlabelled(session: Session, id: string): Session {
  const latest = session.done.lastIndexOf("label");
  return { ...valued(session, id, null), done: session.done.filter((_, place) => place !== latest) };
}

function show(session: Session, id: string): Session {
  const at = session.items.findIndex((item) => item.item_id === id);
  return at < 0 ? next(session) : { ...session, at };
}

function valued(session: Session, id: string, value: number | null): Session {
  return { ...session, items: session.items.map((item) => (item.item_id === id ? { ...item, value } : item)) };
}

export function labelled(session: Session): number {
  return session.items.filter((item) => item.value !== null).length;
}
