/** As trained: the rows of datasets that an episode became, and the tokens of a row with mask, weight, advantage, log-probability and drift. */
import { Fragment } from "preact";
import { useMemo } from "preact/hooks";
import { type Answer, get, type Loaded, useGet, usePaged } from "../api/client";
import { count, cut, exact, plural } from "../format";
import { useKeys } from "../keys";
import { go, link, type Route } from "../route";
import { marked, Text } from "../text";
import { Badge, Facts, Loading, Num, Problem } from "../ui";
import { VirtualList } from "../virtual";

type Row = Answer<"/api/rows/{dataset}/{row_id}">;
type Plain = Answer<"/api/rows/{dataset}/{row_id}/tokens">["items"][number];
type Token = Plain & { drift: number | null };
type Drift = Answer<"/api/rows/{dataset}/{row_id}/drift">;

const MEASURES = ["mask", "weight", "advantage", "logprob", "drift"] as const;
type Measure = (typeof MEASURES)[number];
const VALUES = ["weight", "advantage", "logprob", "drift"] as const;
const CHUNK = 200;
/** Drift by which the ratio of a token leaves GRPO's default clip range, and below which it is neither coloured nor listed. */
const LARGE = 0.2;
const ROUNDING = 0.01;
const LISTED = 5;

export function TrainedView({ route }: { route: Route }) {
  const [, dataset, row] = route.parts;
  if (dataset && row) return <RowView key={`${dataset}/${row}`} dataset={dataset} id={row} route={route} />;
  return <RowsOf id={route.query.episode ?? ""} />;
}

/** The rows that were made of one episode. */
function RowsOf({ id }: { id: string }) {
  const { data, error } = useGet("/api/episodes/{id}/rows", id ? { id } : null);
  return (
    <>
      <header class="head">
        <h1>As trained</h1>
        <p>
          <a href={link(["episode", id])}>
            <Text>{id}</Text>
          </a>
        </p>
      </header>
      <Problem error={error} />
      {!data && !error && <Loading what="its rows" />}
      {data?.items.length === 0 && (
        <p class="soft">
          No dataset holds a row of this episode. <a href={link(["data"], { episode: id })}>Why?</a>
        </p>
      )}
      <ul class="plain">
        {data?.items.map((row) => (
          <li key={`${row.dataset}/${row.row_id}`}>
            <a class="line" href={link(["rows", row.dataset, row.row_id])}>
              <Badge kind="accent">{row.dataset}</Badge>
              <span class="line-task">
                <Text>{row.row_id}</Text> <span class="soft">{row.split}</span>
              </span>
              <span class="line-more soft">{row.reason && <Text>{row.reason}</Text>}</span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

function RowView({ dataset, id, route }: { dataset: string; id: string; route: Route }) {
  const { data: row, error } = useGet("/api/rows/{dataset}/{row_id}", { dataset, row_id: id });
  const tokens = usePaged<Plain>(
    `${dataset}/${id}`,
    (offset, limit, signal) =>
      get("/api/rows/{dataset}/{row_id}/tokens", { dataset, row_id: id, offset, limit }, signal),
    CHUNK,
  );
  const asked = route.query.drift !== undefined;
  const drift = useGet("/api/rows/{dataset}/{row_id}/drift", asked ? { dataset, row_id: id } : null);
  const values = useMemo(() => new Map(drift.data?.places.map((at, n) => [at, drift.data?.values[n]])), [drift.data]);
  const worst = useMemo(() => (drift.data ? largest(drift.data) : []), [drift.data]);
  const item = (index: number): Token | undefined => {
    const token = tokens.item(index);
    return token && { ...token, drift: values.get(index) ?? null };
  };
  const measure = MEASURES.find((name) => name === route.query.by) ?? "mask";
  const table = route.query.as === "table";
  const total = tokens.total ?? 0;
  const selected =
    route.query.token === undefined ? undefined : Math.min(Number(route.query.token) || 0, Math.max(0, total - 1));
  const change = (to: Record<string, string | number>) =>
    go(link(["rows", dataset, id], { ...route.query, ...to }), true);
  const move = (by: number) => total && change({ token: Math.max(0, Math.min(total - 1, (selected ?? -1) + by)) });
  const boundary = (by: 1 | -1) => {
    const from = selected ?? 0;
    const mask = tokens.item(from)?.mask;
    for (let index = from + by; index >= 0 && index < total && tokens.item(index); index += by)
      if (tokens.item(index)?.mask !== mask) return change({ token: index });
  };
  const compute = () => change({ drift: 1, by: "drift" });
  const next = () => worst.length && change({ token: worst[(worst.indexOf(selected ?? -1) + 1) % worst.length] ?? 0 });
  useKeys({
    d: [() => (asked ? next() : compute()), "compute drift, then the token with the next largest"],
    j: [() => move(1), "next token"],
    k: [() => move(-1), "previous token"],
    n: [() => boundary(1), "next edge of the mask"],
    p: [() => boundary(-1), "previous edge of the mask"],
    m: [
      () => change({ by: MEASURES[(MEASURES.indexOf(measure) + 1) % MEASURES.length] ?? "mask" }),
      "colour by the next measure",
    ],
    v: [() => change({ as: table ? "" : "table" }), "text or table"],
  });
  return (
    <>
      <Problem error={error} />
      {!row && !error && <Loading what="the row" />}
      {row && <RowHead row={row} />}
      <div class="token-bar">
        <fieldset class="segments">
          <legend class="hidden">Colour by</legend>
          {MEASURES.map((name) => (
            <button key={name} type="button" aria-pressed={name === measure} onClick={() => change({ by: name })}>
              {name}
            </button>
          ))}
        </fieldset>
        <button type="button" aria-pressed={table} onClick={() => change({ as: table ? "" : "table" })}>
          Table
        </button>
        <Legend measure={measure} />
        <span class="push soft">{tokens.total !== undefined && plural(total, "token")}</span>
      </div>
      {total > 0 && (
        <DriftLine asked={asked} drift={drift} worst={worst} compute={compute} choose={(token) => change({ token })} />
      )}
      <Problem error={tokens.error} />
      {row && tokens.total === undefined && !tokens.error && <Loading what="the tokens" />}
      {tokens.total === 0 && <p class="soft">This row has no tokens of its own: see why above.</p>}
      {table ? (
        <>
          <div class="token-row token-names" aria-hidden="true">
            <span>#</span>
            <span>token</span>
            <span>mask</span>
            {VALUES.map((name) => (
              <span key={name} class={column(name, measure)}>
                {name}
              </span>
            ))}
          </div>
          <VirtualList count={total} estimate={26} at={selected} label="Tokens" onRange={tokens.want}>
            {(index) => <TokenRow token={item(index)} index={index} current={index === selected} measure={measure} />}
          </VirtualList>
        </>
      ) : (
        <VirtualList
          count={Math.ceil(total / CHUNK)}
          estimate={190}
          at={selected === undefined ? undefined : Math.floor(selected / CHUNK)}
          label="Tokens"
          onRange={(from, to) => tokens.want(from * CHUNK, to * CHUNK)}
        >
          {(chunk) => (
            <p class="tokens">
              {Array.from({ length: Math.min(CHUNK, total - chunk * CHUNK) }, (_, at) => {
                const index = chunk * CHUNK + at;
                const token = item(index);
                return token ? (
                  <TokenSpan
                    key={index}
                    token={token}
                    measure={measure}
                    current={index === selected}
                    choose={() => change({ token: index })}
                  />
                ) : null;
              })}
            </p>
          )}
        </VirtualList>
      )}
      {selected !== undefined && <TokenPanel token={item(selected)} index={selected} />}
    </>
  );
}

function RowHead({ row }: { row: Row }) {
  return (
    <header class="head">
      <div class="row">
        <Badge kind="accent">{row.dataset}</Badge>
        <h1>
          <Text>{row.task_id}</Text>
        </h1>
        <span class="soft">
          {row.split} row <Text>{row.row_id}</Text>
        </span>
      </div>
      <Facts
        of={[
          ["reason", row.reason],
          ["weight", row.weight === null ? null : <Num value={row.weight} />],
          ["advantage", row.advantage === null ? null : <Num value={row.advantage} />],
          [
            "made of",
            row.episode_ids.map((id) => (
              <a key={id} class="id" href={link(["episode", id])}>
                <Text>{id}</Text>
              </a>
            )),
          ],
        ]}
      />
      {row.note && (
        <p class="soft">
          <Text>{row.note}</Text>
        </p>
      )}
    </header>
  );
}

/** The numbers of the tokens whose drift is more than rounding, the largest first. */
export function largest(drift: Drift): number[] {
  const order = drift.values.map((value, at) => [Math.abs(value), drift.places[at] ?? 0] as const);
  const beyond = order.filter(([size]) => size >= ROUNDING).sort(([one], [other]) => other - one);
  return beyond.map(([, place]) => place);
}

/** Drift in one line: how to get it, that it is being computed, why there is none, or mean and largest. */
export function DriftLine({
  asked,
  drift: { data, error },
  worst,
  compute,
  choose,
}: {
  asked: boolean;
  drift: Loaded<Drift>;
  worst: readonly number[];
  compute: () => void;
  choose: (token: number) => void;
}) {
  if (!asked)
    return (
      <p class="drift-line">
        <button type="button" onClick={compute}>
          Compute drift
        </button>{" "}
        <span class="soft">loads the weights that sampled this row, and takes seconds to minutes</span>
      </p>
    );
  if (error) return <Problem error={error} />;
  if (!data) return <Loading what="the weights that sampled this row, to compute drift" />;
  return (
    <div class="drift-line">
      <span role="status">
        drift of {plural(data.values.length, "token")}: mean size <Num value={data.mean} digits={2} />, largest{" "}
        <Num value={data.largest} digits={2} />
      </span>
      {worst.slice(0, LISTED).map((place) => (
        <button key={place} type="button" onClick={() => choose(place)}>
          {cut(data.values[data.places.indexOf(place)] ?? 0, 2)} <span class="soft">token {count(place)}</span>
        </button>
      ))}
      <span class="soft">
        <Text>{data.note}</Text>
      </span>
    </div>
  );
}

function isLarge(drift: number | null): boolean {
  return drift !== null && Math.abs(drift) >= LARGE;
}

function Legend({ measure }: { measure: Measure }) {
  if (measure === "mask")
    return (
      <span class="legend soft">
        <span class="token trained">trained</span> <span class="token">context</span>
      </span>
    );
  return (
    <span class="legend soft">
      <span class="token shade" style={{ "--minus": "60%" }}>
        lowest
      </span>{" "}
      <span class="token">0</span>{" "}
      <span class="token shade" style={{ "--plus": "60%" }}>
        highest
      </span>{" "}
      {measure === "drift" && <span class="token drifted">±{LARGE} or more</span>}
    </span>
  );
}

/** The share of colour for a value: its size beside what is usual for the measure; more than 60 % would hide the text. */
function shade(measure: Measure, value: number | null): Record<string, string> {
  if (value === null || measure === "mask" || value === 0) return {};
  if (measure === "drift" && Math.abs(value) < ROUNDING) return {};
  const usual = { weight: 1, advantage: 2, logprob: 5, drift: 1 }[measure];
  const share = `${Math.round(Math.min(1, Math.abs(value) / usual) * 45 + 15)}%`;
  return value < 0 ? { "--minus": share } : { "--plus": share };
}

function TokenSpan({
  token,
  measure,
  current,
  choose,
}: {
  token: Token;
  measure: Measure;
  current: boolean;
  choose: () => void;
}) {
  const value = measure === "mask" ? null : token[measure];
  return (
    <>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: j and k choose tokens */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: thousands of buttons would bury the page's other controls */}
      <span
        class={`token ${measure === "mask" ? (token.mask ? "trained" : "") : "shade"} ${isLarge(token.drift) ? "drifted" : ""}`}
        aria-current={current ? "true" : undefined}
        style={shade(measure, value)}
        title={value === null ? undefined : exact(value)}
        onClick={choose}
      >
        {tokenText(token.text, true)}
      </span>
    </>
  );
}

/** A token with its white space seen: line ends as ⏎, in the table also spaces as ·. `broken`: the line ends there, too. */
function tokenText(text: string, broken = false) {
  const shown = text.replaceAll("\t", "⇥");
  if (!broken) return marked(shown.replaceAll("\n", "⏎").replaceAll(" ", "·"));
  const lines = shown.split("\n");
  return lines.map((line, index) => (
    <Fragment key={index}>
      {marked(line)}
      {index < lines.length - 1 && (
        <>
          ⏎<br />
        </>
      )}
    </Fragment>
  ));
}

/** A row of the table. A phone shows the chosen measure alone. */
function TokenRow({
  token,
  index,
  current,
  measure,
}: {
  token: Token | undefined;
  index: number;
  current: boolean;
  measure: Measure;
}) {
  return (
    <div class={`token-row ${token?.mask ? "in" : ""}`} aria-current={current ? "true" : undefined}>
      <span class="soft num">{count(index)}</span>
      <span class="token-text">{token && tokenText(token.text)}</span>
      {token && <span>{token.mask ? "1" : "0"}</span>}
      {token &&
        VALUES.map((name) => (
          <span key={name} class={column(name, measure)}>
            <Num value={token[name]} />
            {name === "drift" && isLarge(token.drift) && " !"}
          </span>
        ))}
    </div>
  );
}

function column(name: Measure, chosen: Measure): string {
  return name === (chosen === "mask" ? "weight" : chosen) ? "value" : "value other";
}

function TokenPanel({ token, index }: { token: Token | undefined; index: number }) {
  if (!token) return null;
  const values = VALUES.map((name) => [name, token[name]] as const);
  return (
    <aside class="token-panel" aria-live="polite" aria-label="The selected token">
      <span class="soft">token {count(index)}</span>
      <code class="token">{tokenText(token.text)}</code>
      <span>{token.mask ? "trained (mask 1)" : "context (mask 0)"}</span>
      {values.map(([name, value]) => (
        <span key={name}>
          <span class="soft">{name}</span> {value === null ? "–" : <data value={exact(value)}>{exact(value)}</data>}
          {name === "drift" && isLarge(value) && " (large)"}
        </span>
      ))}
    </aside>
  );
}
