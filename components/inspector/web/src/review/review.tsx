/** The review desk: one item after the other, by keyboard. The next items are fetched ahead, and a label is sent while the next item is
 * already shown; one that could not be saved brings its item back. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, get, request, useGet } from "../api/client";
import { type Keys, useKeys } from "../keys";
import { go, link, type Route } from "../route";
import { Text } from "../text";
import { Badge, Loading, Num, Problem } from "../ui";
import { type Draft, type Edit, Editor, editable } from "./editor";
import { type Detail, Item } from "./item";
import "./review.css";
import {
  begin,
  endsWithSkip,
  label,
  labelled,
  type QueueName,
  type Session,
  skip,
  unsaved,
  unskip,
  upcoming,
  withdrawn,
} from "./session";

const QUEUES: ReadonlyArray<readonly [name: QueueName, title: string]> = [
  ["steps", "Steps"],
  ["pairs", "Pairs"],
  ["disputes", "Disputes"],
];
const AHEAD = 3;
const RETRY_MS = 2_000;
/** The second press of a double one would label an item that nobody has seen. */
const DOUBLE_MS = 250;
const HOUR = 3_600_000;

export function ReviewView({ route }: { route: Route }) {
  const name = QUEUES.find(([each]) => each === route.parts[1])?.[0] ?? "steps";
  const desk = useGet("/api/review", {});
  const skipped = useRef<Partial<Record<QueueName, readonly string[]>>>({});
  useKeys(
    Object.fromEntries(
      QUEUES.map(([each, title], place) => [
        String(place + 1),
        [() => go(link(["review", each])), `review ${title.toLowerCase()}`] as const,
      ]),
    ),
  );
  if (desk.error) return <Problem error={desk.error} />;
  if (!desk.data) return <Loading what="the review desk" />;
  if (desk.data.reviewer === null)
    return <p class="error">The inspector is read-only. Start it with --review and your name.</p>;
  return (
    <section class="review" aria-label="Review desk">
      <header class="row">
        <h1>Review</h1>
        <nav class="row" aria-label="Queues">
          {QUEUES.map(([each, title], place) => (
            <a key={each} href={link(["review", each])} aria-current={each === name ? "page" : undefined}>
              <kbd>{place + 1}</kbd> {title} <span class="soft">{desk.data?.queues[each]?.total ?? 0}</span>
            </a>
          ))}
        </nav>
        <span class="push soft">
          as <Text>{desk.data.reviewer}</Text>
        </span>
      </header>
      <Queue key={name} name={name} skipped={skipped.current} />
    </section>
  );
}

function Queue({ name, skipped }: { name: QueueName; skipped: Partial<Record<QueueName, readonly string[]>> }) {
  const queue = useGet("/api/review/queues/{name}", { name });
  if (queue.error) return <Problem error={queue.error} />;
  if (!queue.data) return <Loading what={name} />;
  if (queue.data.length === 0) return <p class="soft">{EMPTY[name]}</p>;
  return (
    <Desk
      name={name}
      first={begin(queue.data, skipped[name])}
      keep={(now) => {
        skipped[name] = now.skipped;
      }}
    />
  );
}

const EMPTY: Record<QueueName, string> = {
  steps: "There is no step to review.",
  pairs: "There is no pair to review: the data build made none, or its episodes are not among these.",
  disputes: "Nobody disagrees: two other people must have labelled the same item differently.",
};
const WORDS: Record<string, string> = { "1": "right", "0.5": "half right", "0": "wrong" };
const PAIR_WORDS: Record<string, string> = { "1": "accepted", "0": "rejected" };

/** The keys as buttons too, for a screen without a keyboard and for people who turned single letters off. */
const ALWAYS = [
  ["s", "skip"],
  ["u", "undo"],
  ["c", "comment"],
  ["f", "full"],
] as const;
const BUTTONS = {
  step: [["y", "right"], ["h", "half right"], ["n", "wrong"], ...ALWAYS],
  pair: [["a", "accept"], ["r", "reject"], ["e", "edit"], ...ALWAYS],
} as const;

function Desk({ name, first, keep }: { name: QueueName; first: Session; keep: (session: Session) => void }) {
  const [session, setSession] = useState(first);
  const [said, say] = useState("");
  const [problem, setProblem] = useState("");
  // By item: what is written for one must not reach another, and is still there where its label could not be saved.
  const [comments, setComments] = useState<Readonly<Record<string, string>>>({});
  const drafts = useRef(new Map<string, Draft>());
  const [full, setFull] = useState(false);
  const [editing, setEditing] = useState("");
  const { details, error } = useDetails(name, session);
  // One request after the other: an undo must not overtake its label.
  const sending = useRef<Promise<unknown>>(Promise.resolve());
  const failures = useRef(0);
  const last = useRef({ value: Number.NaN, at: 0 });
  const begun = useRef<{ at: number; labels: number }>({ at: 0, labels: 0 });
  const input = useRef<HTMLInputElement>(null);
  const entry = session.items[session.at];
  const pair = entry?.kind === "pair";
  const detail = entry && details.get(entry.item_id);
  const draft = detail && editing === detail.item_id ? (drafts.current.get(editing) ?? editable(detail)) : null;
  const comment = (entry && comments[entry.item_id]) ?? "";
  keep(session);

  const change = (to: (session: Session) => Session) => {
    setSession(to);
    setFull(false);
    setEditing("");
    setProblem("");
    document.getElementById("main")?.scrollTo(0, 0);
  };
  const send = (work: () => Promise<void>) => {
    sending.current = sending.current.then(work).catch((error: unknown) => {
      setProblem(error instanceof Error ? error.message : String(error));
    });
  };
  const give = (value: number, edit: Edit | null = null) => {
    if (!detail) return; // what was not seen is not labelled
    if (value === last.current.value && Date.now() - last.current.at < DOUBLE_MS) return;
    last.current = { value, at: Date.now() };
    const [id, words] = [detail.item_id, (pair ? PAIR_WORDS : WORDS)[value] ?? ""];
    if (begun.current.at === 0) begun.current.at = Date.now();
    begun.current.labels += 1;
    const body = { queue: name, item_id: id, value, comment, edit: edit ? JSON.stringify(edit) : "" };
    change((now) => label(now, id, value));
    send(async () => {
      try {
        await request("POST", "/api/review/labels", body);
        say(`${words}${edit ? " with your message" : ""}, saved`);
      } catch (error) {
        begun.current.labels -= 1;
        failures.current += 1;
        setSession((now) => unsaved(now, id));
        throw new Error(
          `The label is not saved, and its item comes next. ${error instanceof Error ? error.message : error}`,
        );
      }
    });
  };
  const pass = () => {
    if (!entry) return;
    change(skip);
    say("skipped until all others are labelled");
  };
  const undo = () => {
    if (endsWithSkip(session)) {
      change(unskip);
      return say("skip taken back");
    }
    const before = failures.current;
    send(async () => {
      if (failures.current !== before) return; // what was to be taken back is not saved: an older label would be withdrawn
      const { item_id: id } = (await request("POST", "/api/review/undo", {})) as { item_id: string | null };
      if (id === null) return say("nothing to undo");
      begun.current.labels = Math.max(0, begun.current.labels - 1);
      const here = session.items.some((item) => item.item_id === id);
      if (here) change((now) => withdrawn(now, id));
      say(here ? "label withdrawn" : "label of another queue withdrawn");
    });
  };
  const rewrite = () => {
    if (!detail) return;
    if (editable(detail)) setEditing(detail.item_id);
    else setProblem("This message cannot be rewritten here: the pair is of whole episodes, or its text was cut.");
  };
  const keys: Keys = {
    ...(pair
      ? {
          a: [() => give(1), "accept the pair"],
          r: [() => give(0), "reject the pair"],
          e: [rewrite, "rewrite the better message, and accept"],
        }
      : { y: [() => give(1), "right"], h: [() => give(0.5), "half right"], n: [() => give(0), "wrong"] }),
    s: [pass, "skip"],
    u: [undo, "undo"],
    c: [() => input.current?.focus(), "write a comment, then label"],
    f: [() => setFull(!full), "show long texts in full"],
  };
  useKeys(draft ? {} : keys); // a letter beside the fields of the form must not decide
  const hours = begun.current.at ? (Date.now() - begun.current.at) / HOUR : 0;
  return (
    <>
      <div class="row review-state">
        <progress max={session.items.length} value={labelled(session)} aria-label="labelled items" />
        <span>
          {labelled(session)} of {session.items.length}
        </span>
        {hours > 0.01 && <span class="soft">{Math.round(begun.current.labels / hours)} an hour</span>}
        <span role="status">{said}</span>
        <span class="push review-keys">
          {BUTTONS[pair ? "pair" : "step"].map(([key, words]) => (
            <button key={key} type="button" class="quiet" onClick={() => keys[key]?.[0]()}>
              <kbd>{key}</kbd> {words}
            </button>
          ))}
        </span>
      </div>
      {problem && (
        <p class="error" role="alert">
          <Text>{problem}</Text>
        </p>
      )}
      {!entry ? (
        <Finished name={name} />
      ) : !detail ? (
        <>
          <Problem error={error} />
          <Loading what="the item" />
        </>
      ) : (
        <>
          <Item
            detail={detail}
            full={full}
            editor={
              draft ? (
                <Editor
                  key={editing}
                  first={draft}
                  save={(edit, written) => {
                    drafts.current.set(editing, written);
                    give(1, edit);
                  }}
                  close={() => setEditing("")}
                />
              ) : undefined
            }
          />
          {detail.others.length > 0 && (
            <ul class="review-others" aria-label="Labels to decide between">
              {detail.others.map((other, place) => (
                <li key={`${place}`}>
                  <Badge kind={other.value >= 0.75 ? "good" : other.value < 0.25 ? "bad" : "warn"}>
                    {(pair ? PAIR_WORDS : WORDS)[other.value] ?? String(other.value)}
                  </Badge>{" "}
                  <Text lines>{other.comment || "no comment"}</Text>
                </li>
              ))}
            </ul>
          )}
          <label class="row">
            Comment
            <input
              ref={input}
              type="text"
              class="grow"
              maxLength={4000}
              value={comment}
              onInput={(event) => setComments({ ...comments, [detail.item_id]: event.currentTarget.value })}
              onKeyDown={(event) => event.key === "Enter" && !event.isComposing && event.currentTarget.blur()}
            />
          </label>
        </>
      )}
    </>
  );
}

/** The details of the shown item and of the next ones, by item; what could not be fetched is asked for again. */
function useDetails(queue: QueueName, session: Session): { details: ReadonlyMap<string, Detail>; error?: ApiError } {
  const [details, setDetails] = useState<ReadonlyMap<string, Detail>>(new Map());
  const [failed, setFailed] = useState<{ error?: ApiError }>({});
  const asked = useRef(new Set<string>());
  const wanted = [session.at, ...upcoming(session, AHEAD)].flatMap((place) => session.items[place]?.item_id ?? []);
  const key = wanted.join(" ");
  // biome-ignore lint/correctness/useExhaustiveDependencies: a request that failed is sent again
  useEffect(() => {
    for (const id of key.split(" ").filter((each) => each && !asked.current.has(each))) {
      asked.current.add(id);
      get("/api/review/items/{item_id}", { item_id: id, queue }).then(
        (detail) => {
          setDetails((known) => new Map(known).set(id, detail));
          setFailed((now) => (now.error ? {} : now));
        },
        (error: ApiError) => {
          setFailed({ error });
          setTimeout(() => {
            asked.current.delete(id);
            setFailed((now) => ({ ...now }));
          }, RETRY_MS);
        },
      );
    }
  }, [key, queue, failed]);
  return { details, ...failed };
}

function Finished({ name }: { name: QueueName }) {
  const { data: found } = useGet("/api/review/agreement/{name}", name === "disputes" ? null : { name });
  return (
    <div class="review-end">
      <h2>All are labelled</h2>
      <p>The next night seals the labels. Press u to return to the last one.</p>
      {found && found.items > 0 && (
        <p>
          Agreement of {found.people} people on {found.items} items: Krippendorff's α <Num value={found.alpha} />
          {found.low !== null && found.high !== null && (
            <>
              {" "}
              (95 % interval <Num value={found.low} /> to <Num value={found.high} />)
            </>
          )}
        </p>
      )}
      {found?.items === 0 && <p class="soft">Nobody else has labelled these yet.</p>}
    </div>
  );
}
