/** One episode: its outcome and scores, then every turn with its calls, results and rewards. */
import { useContext } from "preact/hooks";
import { type Answer, get, useGet, usePaged } from "../api/client";
import { Block } from "../content";
import { duration, plural } from "../format";
import { useKeys } from "../keys";
import { go, link, type Route } from "../route";
import { plainText, Text } from "../text";
import { Badge, Clone, Facts, Loading, Outcome, Problem, Reward } from "../ui";
import { VirtualList } from "../virtual";
import { Images, type Turn, TurnCard } from "./step";

/** Characters of a message that is shown unfolded. */
const SHORT = 1_500;

export type Episode = Answer<"/api/episodes/{id}">;

export function EpisodeView({ route }: { route: Route }) {
  const id = route.parts[1] ?? "";
  const { data: episode, error, loading } = useGet("/api/episodes/{id}", { id });
  if (error) return <Problem error={error} />;
  if (!episode || (loading && episode.episode_id !== id)) return <Loading what="the episode" />;
  return (
    <>
      <EpisodeHead episode={episode} />
      <Turns
        episode={episode}
        key={id}
        turn={Number(route.query.turn ?? 0) || 0}
        step={Number(route.query.step ?? 0) || 0}
        chosen={route.query.turn !== undefined}
      />
    </>
  );
}

function EpisodeHead({ episode }: { episode: Episode }) {
  const { task, agent, outcome, scores } = episode;
  return (
    <header class="head">
      <div class="row">
        <Outcome success={outcome.success} failure={episode.failure?.kind} />
        <h1>
          <Text>{task.task_id}</Text>
        </h1>
        <span class="soft">attempt {episode.attempt}</span>
        {episode.damaged && <Badge kind="bad">{episode.damaged}</Badge>}
        <nav class="row push" aria-label="This episode">
          <a href={link(["group", episode.group_id])}>{plural(episode.attempts.length, "attempt")}</a>
          {useContext(Clone) && (
            <>
              <a href={link(["rows"], { episode: episode.episode_id })}>As trained</a>
              <a href={link(["data"], { episode: episode.episode_id })}>Why in or out</a>
              <a href={link(["lineage"], { kind: "episode", id: episode.episode_id })}>Lineage</a>
            </>
          )}
        </nav>
      </div>
      <div class="scores">
        {scores ? (
          <>
            <Reward label="total" value={scores.total} />
            <Reward label="outcome" value={scores.outcome} />
            <Reward label="process" value={scores.process} />
            <Reward label="efficiency" value={scores.efficiency} />
            {Object.entries(scores.layers).map(([name, layer]) => (
              <Reward
                key={name}
                label={`${name}${layer.counted ? "" : " (not counted)"}`}
                title={layer.sources.join(", ")}
                value={layer.score}
              />
            ))}
          </>
        ) : (
          <span class="soft">Not scored yet.</span>
        )}
      </div>
      {episode.findings.map((finding) => (
        <p class="finding" key={`${finding.kind} ${finding.turn} ${finding.step}`}>
          <Badge kind="warn">{finding.kind}</Badge> <Text>{finding.why}</Text>{" "}
          {finding.turn >= 0 && (
            <a href={link(["episode", episode.episode_id], { turn: finding.turn, step: Math.max(0, finding.step) })}>
              turn {finding.turn}
            </a>
          )}
        </p>
      ))}
      {(outcome.reason || episode.failure) && (
        <p class="soft">
          <Text>{episode.failure ? `${episode.failure.type}: ${episode.failure.message}` : outcome.reason}</Text>
        </p>
      )}
      <details class="more">
        <summary>Task, agent and origin</summary>
        <pre class="open">{<Text lines>{task.description}</Text>}</pre>
        <Facts
          of={[
            ["agent", agent.name],
            ["policy", agent.policy_version],
            ["sampling", JSON.stringify(agent.sampling)],
            ["taskset", task.taskset],
            ["kind", task.kind],
            ["family", task.family],
            ["role", task.role],
            ["tests", outcome.tests_total === null ? null : `${outcome.tests_passed ?? "?"} of ${outcome.tests_total}`],
            ["tokens", episode.tokens === null ? null : String(episode.tokens)],
            ["time", episode.seconds === null ? null : duration(episode.seconds)],
            ["collected", episode.provenance.collected_at],
            ["sandbox", episode.provenance.where],
            ["source", episode.source],
            ["scored by", scores && `${scores.version}${scores.recorded ? "" : ", computed now"}`],
            ["episode", episode.episode_id],
          ]}
        />
      </details>
    </header>
  );
}

function Turns({ episode, turn, step, chosen }: { episode: Episode; turn: number; step: number; chosen: boolean }) {
  const id = episode.episode_id;
  const turns = usePaged<Turn>(id, (offset, limit, signal) =>
    get("/api/episodes/{id}/turns", { id, offset, limit }, signal),
  );
  const total = turns.total ?? episode.turns;
  const select = (to: number, at: number) => go(link(["episode", id], { turn: to, step: at }), true);
  const last = (index: number) => Math.max(0, (turns.item(index)?.steps.length ?? 1) - 1);
  const attempt = (by: number) => {
    const to = episode.attempts[episode.attempts.indexOf(id) + by];
    if (to) go(link(["episode", to], { turn, step }));
  };
  useKeys({
    j: [() => (step < last(turn) ? select(turn, step + 1) : turn + 1 < total && select(turn + 1, 0)), "next step"],
    k: [() => (step > 0 ? select(turn, step - 1) : turn > 0 && select(turn - 1, last(turn - 1))), "previous step"],
    J: [() => select(Math.min(total - 1, turn + 1), 0), "next turn"],
    K: [() => select(Math.max(0, turn - 1), 0), "previous turn"],
    G: [() => select(total - 1, last(total - 1)), "last turn"],
    n: [() => attempt(1), "next attempt at the task"],
    p: [() => attempt(-1), "previous attempt at the task"],
    a: [() => go(link(["group", episode.group_id])), "all attempts side by side"],
    ...(useContext(Clone) && { t: [() => go(link(["rows"], { episode: id })), "as trained"] as const }),
  });
  /** The file as the episode last read or wrote it before a step: what an edit of the whole file changes. */
  const before = (index: number, at: number, path: string): string | undefined => {
    for (let earlier = index; earlier >= 0; earlier--) {
      const steps = turns.item(earlier)?.steps.slice(0, earlier === index ? at : undefined) ?? [];
      const found = steps.findLast((each) => each.arguments.path === path && !each.result?.error);
      if (found && typeof found.arguments.new === "string" && found.arguments.old === "") return found.arguments.new;
      if (found && found.tool === "read_file" && found.result) return found.result.content;
      if (found) return undefined;
    }
    return undefined;
  };
  return (
    <>
      <Problem error={turns.error} />
      {episode.messages.map((message, index) => (
        <details class="message" key={index} open={message.length < SHORT}>
          <summary>
            <Text>{message.role}</Text>
          </summary>
          <Block text={message.content} length={message.length} label={`Message of ${plainText(message.role)}`} />
          <Images names={message.images} of="the message" />
        </details>
      ))}
      <VirtualList
        count={total}
        estimate={220}
        at={chosen ? turn : undefined}
        align="start"
        ready={turns.item(turn) !== undefined}
        label="Turns"
        onRange={turns.want}
      >
        {(index) => {
          const found = turns.item(index);
          return found ? (
            <TurnCard id={id} turn={found} step={index === turn && chosen ? step : undefined} before={before} />
          ) : (
            <div class="turn waiting">Turn {index}</div>
          );
        }}
      </VirtualList>
    </>
  );
}
