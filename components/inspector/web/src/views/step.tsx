/** A turn of an episode: what the agent thought and wrote, its calls with their results, and each step's rewards with who said so. */
import type { Answer } from "../api/client";
import { get } from "../api/client";
import { Block, Diff } from "../content";
import { duration } from "../format";
import { link } from "../route";
import { plainText, Text } from "../text";
import { Badge, Num, Reward } from "../ui";

export type Turn = Answer<"/api/episodes/{id}/turns">["items"][number];
export type Step = Turn["steps"][number];
type Score = Step["scores"][number];

/** One turn. `step`: the index of the selected step, where one of this turn's is. */
export function TurnCard({
  id,
  turn,
  step,
  before,
}: {
  id: string;
  turn: Turn;
  step: number | undefined;
  before: (turn: number, step: number, path: string) => string | undefined;
}) {
  return (
    <article class="turn" aria-label={`Turn ${turn.index}`}>
      <header class="turn-head">
        <h2>Turn {turn.index}</h2>
        {turn.agent_id && (
          <span class="soft">
            <Text>{turn.agent_id}</Text>
          </span>
        )}
        {turn.stop_reason && turn.stop_reason !== "stop" && <Badge kind="warn">{turn.stop_reason}</Badge>}
        <span class="push soft">
          {turn.usage && `${turn.usage.prompt_tokens ?? "?"} → ${turn.usage.completion_tokens ?? "?"} tokens`}
          {turn.seconds !== null && ` · ${duration(turn.seconds)}`}
        </span>
      </header>
      {turn.thought && (
        <details class="thought" open={turn.thought.length < 400}>
          <summary>Thought</summary>
          <Block text={turn.thought} label={`Thought of turn ${turn.index}`} />
        </details>
      )}
      {turn.text && <Block text={turn.text} label={`Text of turn ${turn.index}`} />}
      {turn.steps.length === 0 && <Rewards scores={turn.scores} total={turn.total} where={`turn ${turn.index}`} />}
      {turn.steps.map((each, index) => (
        <StepCard
          key={each.call_id}
          id={id}
          turn={turn}
          step={each}
          index={index}
          current={step === index}
          before={before}
        />
      ))}
    </article>
  );
}

function StepCard({
  id,
  turn,
  step,
  index,
  current,
  before,
}: {
  id: string;
  turn: Turn;
  step: Step;
  index: number;
  current: boolean;
  before: (turn: number, step: number, path: string) => string | undefined;
}) {
  const where = `turn ${turn.index}, step ${index}`;
  return (
    <section
      class="step"
      aria-label={`Step ${index} of turn ${turn.index}`}
      aria-current={current ? "step" : undefined}
    >
      <div class="step-main">
        <header class="row">
          <a class="tool" href={link(["episode", id], { turn: turn.index, step: index })} title="a link to this step">
            <Text>{step.tool || "no tool"}</Text>
          </a>
          {step.parse_error && <Badge kind="bad">not parsed</Badge>}
          {step.seconds !== null && <span class="soft push">{duration(step.seconds)}</span>}
        </header>
        <Arguments turn={turn} step={step} index={index} before={before} />
        {step.parse_error && (
          <p class="error">
            <Text lines>{step.parse_error}</Text>
          </p>
        )}
        <ResultBlock id={id} turn={turn.index} index={index} step={step} where={where} />
      </div>
      <Rewards
        scores={step.scores}
        total={step.total}
        where={where}
        env={index === turn.steps.length - 1 ? turn.env_reward : null}
      />
    </section>
  );
}

const EDITS = [
  ["old", "new"],
  ["old_str", "new_str"],
  ["old_string", "new_string"],
] as const;
const PATHS = ["path", "file_path", "file"] as const;

function Arguments({
  turn,
  step,
  index,
  before,
}: {
  turn: Turn;
  step: Step;
  index: number;
  before: (turn: number, step: number, path: string) => string | undefined;
}) {
  if (step.parse_error) return <Block text={step.raw ?? ""} label="The call as it was written" />;
  const given = step.arguments;
  const edit = EDITS.find(([old, now]) => typeof given[old] === "string" && typeof given[now] === "string");
  const path = PATHS.map((name) => given[name]).find((value) => typeof value === "string");
  const others = Object.entries(given).filter(([name]) => !edit?.some((each) => each === name));
  const old = edit && (String(given[edit[0]]) || (path ? before(turn.index, index, path as string) : undefined) || "");
  return (
    <>
      {others.length > 0 && (
        <dl class="args">
          {others.map(([name, value]) => (
            <div key={name}>
              <dt>
                <Text>{name}</Text>
              </dt>
              <dd>{argument(name, value)}</dd>
            </div>
          ))}
        </dl>
      )}
      {edit && (
        <Diff
          before={old ?? ""}
          after={String(given[edit[1]])}
          label={`Changes of ${plainText(String(path ?? "a file"))}`}
        />
      )}
    </>
  );
}

function argument(name: string, value: unknown) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
  return text.length > 120 || text.includes("\n") ? (
    <Block text={text} label={`Argument ${plainText(name)}`} />
  ) : (
    <code>
      <Text>{text}</Text>
    </code>
  );
}

function ResultBlock({
  id,
  turn,
  index,
  step,
  where,
}: {
  id: string;
  turn: number;
  index: number;
  step: Step;
  where: string;
}) {
  const result = step.result;
  if (!result) return <p class="soft no-result">No result.</p>;
  const failed = Boolean(result.error) || (result.exit_code !== null && result.exit_code !== 0);
  return (
    <div class={`result ${failed ? "failed" : ""}`}>
      <div class="row">
        <span class="soft">Result</span>
        {result.exit_code !== null && (
          <Badge kind={result.exit_code === 0 ? "good" : "bad"}>{`exit ${result.exit_code}`}</Badge>
        )}
        {result.truncated && <Badge kind="warn">cut when it was recorded</Badge>}
      </div>
      {result.error && (
        <p class="error">
          <Text lines>{result.error}</Text>
        </p>
      )}
      {result.image ? (
        <Images names={[result.image]} of={where} />
      ) : (
        result.content !== "" && (
          <Block
            text={result.content}
            length={result.length}
            label={`Result of ${where}`}
            load={async (offset, length) =>
              (await get("/api/episodes/{id}/content", { id, turn, call: index, offset, length })).text
            }
          />
        )
      )}
    </div>
  );
}

/** Rewards of one step: its total, then each scorer by layer, with the reason and who gave it. */
export function Rewards({
  scores,
  total,
  where,
  env = null,
}: {
  scores: readonly Score[];
  total: number | null;
  where: string;
  env?: number | null;
}) {
  return (
    <aside class="rewards" aria-label={`Rewards of ${where}`}>
      <div class="rewards-total">
        <span class="soft">process</span>
        <Reward value={total} />
      </div>
      {env !== null && (
        <div class="score">
          <span class="layer env">environment</span>
          <Num value={env} />
        </div>
      )}
      {scores.map((score) => (
        <div class="score" key={`${score.layer}.${score.scorer}`}>
          <span class={`layer ${score.layer}`}>
            <Text>{score.layer}</Text>
          </span>
          <span class="scorer" title={score.source ? plainText(score.source) : undefined}>
            <Text>{score.scorer}</Text>
          </span>
          <Reward value={score.score} />
          {score.why && (
            <p class="why">
              <Text lines>{score.why}</Text>
            </p>
          )}
          {score.source && (
            <p class="who soft">
              <Text>{score.source}</Text>
            </p>
          )}
        </div>
      ))}
    </aside>
  );
}

/** Images by their names; the server checks that each is one. */
export function Images({ names, of }: { names: readonly string[]; of: string }) {
  return (
    <>
      {names.map((name) => (
        <img
          key={name}
          class="shot"
          src={`/api/blobs/${encodeURIComponent(name)}`}
          alt={`Screenshot of ${of}`}
          loading="lazy"
        />
      ))}
    </>
  );
}
