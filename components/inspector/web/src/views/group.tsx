/** A group: the attempts at one task side by side, aligned turn by turn, with their differences marked. */
import { type Answer, useGet } from "../api/client";
import { Compared } from "../content";
import { count, duration, plural } from "../format";
import { useKeys } from "../keys";
import { go, link, type Route } from "../route";
import { Text } from "../text";
import { Badge, Loading, Num, Outcome, Problem, Reward } from "../ui";
import { VirtualList } from "../virtual";

type Group = Answer<"/api/groups/{id}">;
type Attempt = Group["attempts"][number];
type Cell = Group["rows"][number]["cells"][number];

export function GroupView({ route }: { route: Route }) {
  const id = route.parts[1] ?? "";
  const { data: group, error } = useGet("/api/groups/{id}", { id });
  const rows = group?.rows.length ?? 0;
  const attempts = group?.attempts ?? [];
  const row = Math.min(Number(route.query.row ?? 0) || 0, Math.max(0, rows - 1));
  const column = Math.min(Number(route.query.attempt ?? 0) || 0, Math.max(0, attempts.length - 1));
  const select = (to: number, at: number) =>
    go(
      link(["group", id], {
        row: Math.max(0, Math.min(rows - 1, to)),
        attempt: Math.max(0, Math.min(attempts.length - 1, at)),
      }),
      true,
    );
  const difference = (by: 1 | -1) => {
    for (let index = row + by; index >= 0 && index < rows; index += by)
      if (group?.rows[index]?.differs) return select(index, column);
  };
  const open = () => {
    const episode = attempts[column]?.episode_id;
    const turn = group?.rows[row]?.cells[column]?.turn;
    if (episode) go(link(["episode", episode], { turn }));
  };
  useKeys({
    j: [() => select(row + 1, column), "next turn"],
    k: [() => select(row - 1, column), "previous turn"],
    n: [() => select(row, column + 1), "next attempt"],
    p: [() => select(row, column - 1), "previous attempt"],
    d: [() => difference(1), "next difference"],
    D: [() => difference(-1), "previous difference"],
    Enter: [open, "open the attempt at this turn"],
  });
  if (error) return <Problem error={error} />;
  if (!group) return <Loading what="the attempts" />;
  return (
    <div class="group" style={{ "--columns": attempts.length }}>
      <header class="head">
        <h1>
          <Text>{group.task.task_id}</Text>
        </h1>
        <p class="task-text">
          <Text lines>{group.task.description}</Text>
        </p>
      </header>
      <div class="group-scroll">
        <div class="attempts">
          <span />
          {attempts.map((attempt, index) => (
            <AttemptHead key={attempt.episode_id} attempt={attempt} current={index === column} />
          ))}
        </div>
        <VirtualList
          count={rows}
          estimate={64}
          at={route.query.row === undefined ? undefined : row}
          label="Aligned turns"
        >
          {(index) => {
            const found = group.rows[index];
            return (
              <div class={`aligned ${found?.differs ? "differs" : ""}`}>
                <span
                  class="aligned-turn soft"
                  title={found?.differs ? "the attempts differ here" : "the same in all attempts"}
                >
                  {index} <span aria-hidden="true">{found?.differs ? "≠" : "="}</span>
                </span>
                {found?.cells.map((cell, at) => (
                  <CellLink
                    key={attempts[at]?.episode_id}
                    cell={cell}
                    other={at === 0 ? undefined : found.cells[0]?.summary}
                    attempt={attempts[at]}
                    current={index === row && at === column}
                  />
                ))}
              </div>
            );
          }}
        </VirtualList>
      </div>
    </div>
  );
}

function AttemptHead({ attempt, current }: { attempt: Attempt; current: boolean }) {
  const { scores } = attempt;
  return (
    <section class="attempt" aria-current={current ? "true" : undefined} aria-label={`Attempt ${attempt.attempt}`}>
      <div class="row">
        <Outcome success={attempt.success} failure={attempt.failure} />
        <a href={link(["episode", attempt.episode_id])}>attempt {attempt.attempt}</a>
      </div>
      <Reward label="total" value={attempt.reward} />
      {Object.entries(scores).map(([name, score]) => (
        <Reward key={name} label={name} value={score} />
      ))}
      <p class="soft">
        {plural(attempt.turns, "turn")}
        {attempt.tokens !== null && `, ${count(attempt.tokens)} tokens`}
        {attempt.seconds !== null && `, ${duration(attempt.seconds)}`}
      </p>
      {attempt.findings.map((finding) => (
        <Badge key={finding} kind="warn">
          {finding}
        </Badge>
      ))}
      {attempt.cause && !attempt.success && (
        <p class="soft">
          <Text>{attempt.cause}</Text>
        </p>
      )}
    </section>
  );
}

function CellLink({
  cell,
  other,
  attempt,
  current,
}: {
  cell: Cell;
  other: string | undefined;
  attempt: Attempt | undefined;
  current: boolean;
}) {
  if (!cell || !attempt) return <span class="cell absent soft">no turn</span>;
  return (
    <a
      class={`cell ${cell.same ? "same" : ""}`}
      href={link(["episode", attempt.episode_id], { turn: cell.turn })}
      aria-current={current ? "true" : undefined}
    >
      <span class="row">
        <span class="tool">
          <Text>{cell.tools || "text"}</Text>
        </span>
        {cell.failed && <Badge kind="bad">error</Badge>}
        <span class="push">
          <Num value={cell.reward} digits={2} />
        </span>
      </span>
      <span class="cell-text">
        <Compared text={cell.summary} other={other} />
      </span>
    </a>
  );
}
