/** Data: why an episode is in or out of the datasets, its rank's terms, and what was quarantined. */
import { useState } from "preact/hooks";
import { type Answer, get, useGet, usePaged } from "../api/client";
import { plural } from "../format";
import { useKeys } from "../keys";
import { go, link, type Route } from "../route";
import { Text } from "../text";
import { Badge, Facts, Loading, Num, Problem, Reward } from "../ui";
import { VirtualList } from "../virtual";

type Listed = Answer<"/api/data/ranked">["items"][number];
type Why = Answer<"/api/data/why/{id}">;

export function DatasetsView({ route }: { route: Route }) {
  const id = route.query.episode;
  return id ? <WhyView id={id} /> : <RankedView route={route} />;
}

/** All ranked episodes, the best first, with the reason why each is in or out. */
function RankedView({ route }: { route: Route }) {
  const { at, ...filters } = route.query;
  const [counts, setCounts] = useState<Answer<"/api/data/ranked">["counts"]>();
  const rows = usePaged<Listed>(JSON.stringify(filters), async (offset, limit, signal) => {
    const page = await get("/api/data/ranked", { ...filters, offset, limit }, signal);
    setCounts(page.counts);
    return page;
  });
  const total = rows.total ?? 0;
  const cursor = Math.min(Number(at ?? 0) || 0, Math.max(0, total - 1));
  const move = (by: number) =>
    go(link(["data"], { ...filters, at: Math.max(0, Math.min(total - 1, cursor + by)) }), true);
  useKeys({
    j: [() => move(1), "next episode"],
    k: [() => move(-1), "previous episode"],
    Enter: [
      () => {
        const row = rows.item(cursor);
        if (row) go(link(["data"], { episode: row.episode_id }));
      },
      "why it is in or out",
    ],
  });
  return (
    <>
      <header class="head">
        <h1>Data</h1>
        <div class="row">
          {counts?.map(({ value, count }) => (
            <button
              type="button"
              key={value}
              class="chip"
              aria-pressed={filters.verdict === value}
              onClick={() => go(link(["data"], { verdict: filters.verdict === value ? "" : value }))}
            >
              <Text>{value}</Text> {count}
            </button>
          ))}
        </div>
      </header>
      <Problem error={rows.error} />
      {rows.total === undefined && !rows.error && <Loading what="the build's tables" />}
      {rows.total === 0 && <p class="soft">No episode. A night's build fills these tables.</p>}
      <VirtualList
        count={total}
        estimate={58}
        at={at === undefined ? undefined : cursor}
        label="Ranked episodes"
        onRange={rows.want}
      >
        {(index) => <RankedLine row={rows.item(index)} current={index === cursor} />}
      </VirtualList>
    </>
  );
}

function RankedLine({ row, current }: { row: Listed | undefined; current: boolean }) {
  if (!row) return <div class="line waiting" />;
  return (
    <a class="line" href={link(["data"], { episode: row.episode_id })} aria-current={current ? "true" : undefined}>
      <Verdict of={row.verdict} />
      <span class="line-task">
        <Text>{row.task_id}</Text>
      </span>
      <Reward label="rank" value={row.gdi} />
      <span class="line-more soft">
        <Text>{row.reason}</Text>
      </span>
    </a>
  );
}

function Verdict({ of }: { of: string }) {
  return <Badge kind={of === "in" ? "good" : of === "quarantined" ? "bad" : "none"}>{of}</Badge>;
}

/** Everything that decided on one episode. */
function WhyView({ id }: { id: string }) {
  const { data, error } = useGet("/api/data/why/{id}", { id });
  useKeys({
    o: [() => go(link(["episode", id])), "open the episode"],
    t: [() => go(link(["rows"], { episode: id })), "as trained"],
  });
  return (
    <>
      <Problem error={error} />
      {!data && !error && <Loading what="why" />}
      {data && <WhyText why={data} />}
    </>
  );
}

function WhyText({ why }: { why: Why }) {
  return (
    <>
      <header class="head">
        <div class="row">
          <Verdict of={why.verdict} />
          <h1>
            <Text>{why.reason}</Text>
          </h1>
        </div>
        <Facts
          of={[
            [
              "episode",
              <a key="id" href={link(["episode", why.episode_id])}>
                <Text>{why.episode_id}</Text>
              </a>,
            ],
            ["rank", <Num key="gdi" value={why.gdi} />],
            ["weight", <Num key="weight" value={why.weight} />],
            ...Object.entries(why.about)
              .filter(([name]) => name !== "episode_id")
              .map(([name, value]) => [name, shown(value)] as const),
          ]}
        />
      </header>
      {why.terms.length > 0 && <Terms terms={why.terms} />}
      {why.expectations.length > 0 && (
        <>
          <h2>Failed checks</h2>
          <ul class="plain">
            {why.expectations.map((failed) => (
              <li key={failed.name}>
                <Badge kind={failed.severity === "critical" ? "bad" : "warn"}>{failed.severity}</Badge>{" "}
                <Text>{failed.name}</Text>
                {": "}
                <Text>{failed.reason}</Text>
              </li>
            ))}
          </ul>
        </>
      )}
      <h2>Rows</h2>
      {Object.keys(why.rows).length === 0 && <p class="soft">No dataset holds a row of this episode.</p>}
      <ul class="plain">
        {Object.entries(why.rows).flatMap(([dataset, rows]) =>
          rows.map((row) => (
            <li key={`${dataset}/${row.split}-${row.row}`}>
              <a href={link(["rows", dataset, `${row.split}-${row.row}`])}>
                <Text>{dataset}</Text> {row.split} {row.row}
              </a>
              {row.reason && (
                <span class="soft">
                  {" "}
                  <Text>{row.reason}</Text>
                </span>
              )}
            </li>
          )),
        )}
      </ul>
      {Object.keys(why.task).length > 0 && (
        <>
          <h2>Its task</h2>
          <Facts of={Object.entries(why.task).map(([name, value]) => [name, shown(value)] as const)} />
        </>
      )}
    </>
  );
}

function Terms({ terms }: { terms: Why["terms"] }) {
  return (
    <>
      <h2>Terms of its rank</h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">term</th>
              <th scope="col">value</th>
              <th scope="col">weight</th>
              <th scope="col">adds</th>
            </tr>
          </thead>
          <tbody>
            {terms.map((term) => (
              <tr key={term.name}>
                <th scope="row">
                  <Text>{term.name}</Text>
                </th>
                <td>
                  <Reward value={term.value} />
                </td>
                <td>
                  <Num value={term.value && term.contribution !== null ? term.contribution / term.value : null} />
                </td>
                <td>
                  <Num value={term.contribution} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="soft">
        {plural(terms.filter((term) => term.value === null).length, "term")} without a value add nothing.
      </p>
    </>
  );
}

export function shown(value: unknown) {
  if (typeof value === "number") return <Num value={value} />;
  if (value === null || value === undefined || value === "") return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
