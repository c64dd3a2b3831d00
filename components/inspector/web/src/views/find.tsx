/** Find: full text and conditions over all episodes, with facets. Every filter stands in the address. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type Answer, get, usePaged } from "../api/client";
import { count, duration, plural } from "../format";
import { useKeys } from "../keys";
import { go, link, type Query, type Route } from "../route";
import { plainText, Text } from "../text";
import { Badge, Loading, Outcome, Problem, Reward } from "../ui";
import { VirtualList } from "../virtual";

type Found = Answer<"/api/episodes">;
export type EpisodeRow = Found["items"][number];

const FACETS = ["source", "kind", "outcome", "cause", "finding", "reward"] as const;
/** Letters that follow each other faster, as of a key that is held down, are searched together. */
const TYPING_MS = 60;

export function FindView({ route }: { route: Route }) {
  const { at, ...filters } = route.query;
  const key = JSON.stringify(filters);
  const [facets, setFacets] = useState<Found["facets"]>();
  const found = usePaged<EpisodeRow>(key, async (offset, limit, signal) => {
    const page = await get("/api/episodes", { ...filters, offset, limit }, signal);
    if (offset === 0) setFacets(page.facets);
    return page;
  });
  const total = found.total ?? 0;
  const cursor = Math.min(Number(at ?? 0) || 0, Math.max(0, total - 1));
  const change = (to: Query, replace = false) => go(link(["episodes"], { ...filters, ...to }), replace);
  const move = (by: number) =>
    go(link(["episodes"], { ...filters, at: Math.max(0, Math.min(total - 1, cursor + by)) }), true);
  const open = () => {
    const row = found.item(cursor);
    if (row) go(link(["episode", row.episode_id]));
  };
  const search = useRef<HTMLInputElement>(null);
  useKeys({
    j: [() => move(1), "next episode"],
    k: [() => move(-1), "previous episode"],
    J: [() => move(25), "25 episodes down"],
    K: [() => move(-25), "25 episodes up"],
    Enter: [open, "open the episode"],
    a: [
      () => {
        const row = found.item(cursor);
        if (row) go(link(["group", row.group_id]));
      },
      "open all attempts at its task",
    ],
    "/": [() => search.current?.focus(), "search"],
  });
  return (
    <div class="find">
      <h1 class="hidden">Find episodes</h1>
      <search class="find-bar">
        <Typed
          input={search}
          label="Search in texts"
          placeholder="Words of tasks, calls and results"
          name="q"
          value={filters.q ?? ""}
          change={change}
        />
        <Typed
          label="Condition"
          placeholder="success == false and turns > 5"
          name="where"
          value={filters.where ?? ""}
          change={change}
          mono
        />
        <label class="sort">
          <span class="soft">Sort</span>
          <select value={filters.sort ?? ""} onChange={(event) => change({ sort: event.currentTarget.value })}>
            {SORTS.map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </label>
      </search>
      <Facets facets={facets} filters={filters} change={change} />
      <section class="found" aria-label="Episodes">
        <p class="found-count">
          <span role="status">{found.total === undefined ? "…" : plural(total, "episode")}</span>
          {Object.entries(filters).map(([name, value]) => (
            <button
              type="button"
              class="chip"
              key={name}
              title="remove this filter"
              onClick={() => change({ [name]: "" })}
            >
              {name}: <Text>{value}</Text> <span aria-hidden="true">×</span>
            </button>
          ))}
        </p>
        <Problem error={found.error} />
        {found.total === undefined && !found.error && <Loading what="episodes" />}
        {found.total === 0 && !found.error && <p class="soft">No episode fits. Remove a filter above.</p>}
        <VirtualList
          count={total}
          estimate={58}
          at={at === undefined ? undefined : cursor}
          label="Episodes"
          onRange={found.want}
        >
          {(index) => <Line row={found.item(index)} current={index === cursor} />}
        </VirtualList>
      </section>
    </div>
  );
}

const SORTS = [
  ["", "as recorded"],
  ["-collected_at", "newest"],
  ["reward", "lowest reward"],
  ["-reward", "highest reward"],
  ["-turns", "most turns"],
  ["-tokens", "most tokens"],
  ["-seconds", "longest"],
] as const;

function Typed({
  input,
  label,
  placeholder,
  name,
  value,
  change,
  mono = false,
}: {
  input?: preact.RefObject<HTMLInputElement>;
  label: string;
  placeholder: string;
  name: string;
  value: string;
  change: (to: Query, replace: boolean) => void;
  mono?: boolean;
}) {
  const timer = useRef(0);
  const last = useRef(0);
  const [text, setText] = useState(value);
  // What was typed here and comes back as the address's value, while the text may have grown further.
  const own = useRef<string[]>([]);
  useEffect(() => {
    const place = own.current.indexOf(value);
    own.current.splice(0, place < 0 ? own.current.length : place + 1);
    if (place < 0) setText(value);
  }, [value]);
  return (
    <input
      {...(input ? { ref: input } : {})}
      type="search"
      class={mono ? "mono" : ""}
      aria-label={label}
      placeholder={placeholder}
      spellcheck={false}
      autocomplete="off"
      value={text}
      onInput={(event) => {
        const now = event.currentTarget.value;
        setText(now);
        clearTimeout(timer.current);
        const wait = event.timeStamp - last.current < TYPING_MS ? TYPING_MS : 0;
        last.current = event.timeStamp;
        timer.current = window.setTimeout(() => {
          own.current.push(now);
          change({ [name]: now }, true);
        }, wait);
      }}
    />
  );
}

function Facets({
  facets,
  filters,
  change,
}: {
  facets: Found["facets"] | undefined;
  filters: Query;
  change: (to: Query) => void;
}) {
  const wide = matchMedia("(min-width: 900px)").matches;
  return (
    <details class="facets" open={wide}>
      <summary>Filters</summary>
      {FACETS.map((name) => {
        const values = facets?.[name] ?? [];
        const chosen = filters[name];
        if (values.length === 0 && !chosen) return null;
        return (
          <fieldset key={name}>
            <legend>{name}</legend>
            {values.map(({ value, count: number }) => (
              <button
                type="button"
                key={value}
                aria-pressed={chosen === value}
                title={plainText(value)}
                onClick={() => change({ [name]: chosen === value ? "" : value })}
              >
                <Text>{name === "reward" ? tenth(value) : value}</Text>
                <span class="soft num">{count(number)}</span>
              </button>
            ))}
          </fieldset>
        );
      })}
    </details>
  );
}

/** One episode of a list; empty until its page arrives. */
export function Line({ row, current = false }: { row: EpisodeRow | undefined; current?: boolean }) {
  if (!row) return <div class="line waiting" />;
  return (
    <a class="line" href={link(["episode", row.episode_id])} aria-current={current ? "true" : undefined}>
      <Outcome success={row.success} failure={row.failure} />
      <span class="line-task">
        <Text>{row.task_id}</Text>
        <span class="soft"> attempt {row.attempt}</span>
      </span>
      <Reward value={row.reward} />
      <span class="line-more soft">
        {row.kind && <Text>{row.kind}</Text>}
        <Text>{row.policy_version || row.agent}</Text>
        <span>{plural(row.turns, "turn")}</span>
        {row.tokens !== null && <span>{plural(row.tokens, "token")}</span>}
        {row.seconds !== null && <span>{duration(row.seconds)}</span>}
        {row.cause && !row.success && <Text>{row.cause}</Text>}
      </span>
      <span class="line-marks">
        {row.damaged && <Badge kind="bad">damaged</Badge>}
        {row.findings.map((finding) => (
          <Badge key={finding} kind="warn">
            {finding}
          </Badge>
        ))}
      </span>
    </a>
  );
}

/** A facet of rewards in words: its value is the lower bound of a tenth. */
function tenth(value: string): string {
  const low = Number(value);
  return Number.isNaN(low) || low >= 1 ? value : `${value} to ${((Math.round(low * 10) + 1) / 10).toFixed(1)}`;
}
