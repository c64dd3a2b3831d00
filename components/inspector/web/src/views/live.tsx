/** Live: the running night, its steps and when it will be done, what failed and why, and the newest episodes. */
import { type Answer, useGet } from "../api/client";
import { count, duration } from "../format";
import { link } from "../route";
import { Text } from "../text";
import { Badge, Loading, Problem } from "../ui";
import { Line } from "./find";

const REFRESH_MS = 2_000;
const NIGHTS: Record<string, string> = {
  begun: "accent",
  running: "accent",
  finished: "good",
  failed: "bad",
  interrupted: "warn",
};
const STATES: Record<string, readonly [sign: string, kind: string]> = {
  done: ["✓", "good"],
  running: ["▶", "accent"],
};

/** What is left: of the collection that plays now by its own speed, of the steps after it by the last night like this one. */
function toGo({ eta_seconds, steps }: Answer<"/api/live">): string {
  const waiting = steps.filter((step) => step.state === "waiting").map((step) => step.seconds ?? 0);
  const rest = waiting.reduce((sum, seconds) => sum + seconds, 0);
  if (waiting.length > 0) return `about ${duration((eta_seconds ?? 0) + rest)} to go, by the last night like it`;
  const collection = eta_seconds === null ? "" : `this collection ends in about ${duration(eta_seconds)}; `;
  return `${collection}the steps after it are not listed: no night of this scale has finished here`;
}

export function LiveView() {
  const { data: live, error } = useGet("/api/live", {}, REFRESH_MS);
  return (
    <>
      <Problem error={error} />
      {!live && !error && <Loading what="the night" />}
      {live && (
        <>
          <header class="head">
            <div class="row">
              <h1>{live.night ? <Text>{live.night}</Text> : "No night is running"}</h1>
              {live.state && <Badge kind={NIGHTS[live.state] ?? "none"}>{live.state}</Badge>}
              {live.state === "running" && <span class="soft">{toGo(live)}</span>}
            </div>
            {live.note && (
              <p class="soft">
                <Text>{live.note}</Text>
              </p>
            )}
          </header>
          <div class="live">
            <ol class="steps" aria-label="Steps of the night">
              {live.steps.map((step) => {
                const [sign, kind] = STATES[step.state] ?? ["·", "none"];
                return (
                  <li key={step.name} class={step.state}>
                    <Badge kind={kind}>{`${sign} ${step.state}`}</Badge>
                    <Text>{step.name}</Text>
                    {step.total ? (
                      <>
                        <progress max={step.total} value={step.done ?? 0} aria-label={`Progress of ${step.name}`} />
                        <span class="num soft">
                          {count(step.done ?? 0)} of {count(step.total)}
                        </span>
                      </>
                    ) : null}
                    {step.seconds !== null && (step.state === "done" || step.seconds >= 1) && (
                      <span class="soft push">
                        {step.state === "waiting" && "about "}
                        {duration(step.seconds)}
                      </span>
                    )}
                  </li>
                );
              })}
            </ol>
            <div>
              <h2>Failures by cause</h2>
              {live.causes.length === 0 && <p class="soft">None so far.</p>}
              <ul class="causes">
                {live.causes.map(({ value, count: number }) => (
                  <li key={value}>
                    <a href={link(["episodes"], { cause: value })}>
                      <Text>{value}</Text>
                    </a>
                    <meter
                      max={Math.max(...live.causes.map((each) => each.count))}
                      value={number}
                      aria-label={`${number} episodes`}
                    />
                    <span class="num">{count(number)}</span>
                  </li>
                ))}
              </ul>
              <h2>Newest episodes</h2>
              {live.newest.length === 0 && <p class="soft">No episode yet.</p>}
              {live.newest.map((row) => (
                <Line key={row.episode_id} row={row} />
              ))}
            </div>
          </div>
        </>
      )}
    </>
  );
}
