"""Commands that play episodes: collect, evaluate, branch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError
from ratchet.components.core.files import refuse_overwriting, write_json_lines
from ratchet.render.terminal import print_fields, print_json, print_note, print_table

if TYPE_CHECKING:
    from ratchet.components.trajectories.trajectory import Trajectory


POLICY_HELP = (
    "champion, @ALIAS or @VERSION of the registry, teacher, rewriter, clumsy, random-edit, transformers:FOLDER, vllm:FOLDER, "
    "openai:FILE.yaml or openai:MODEL@BASE_URL (Ratchet's docs/servers.md; replies are cut at the max_new_tokens of the file, "
    "else of the scale), MODULE:FUNCTION of an agent function (docs/library.md), or best-of-8:STEP_MODEL:POLICY (docs/prm.md)."
)


SYSTEM_HELP = "A system prompt for the policy: the text, or a file that ends in .txt or .md."


def _system_prompt(value: str | None) -> str | None:
    if value is None or not value.endswith((".txt", ".md")):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--system {value} cannot be read: {error}; give a text file, or the text") from error


def evaluate(
    policy: Annotated[str, Option(help=POLICY_HELP)] = "champion",
    system: Annotated[str | None, Option(help=SYSTEM_HELP)] = None,
    taskset: Annotated[str | None, Option(help="A taskset's name or folder; by default the scale's.")] = None,
    role: Annotated[str | None, Option(help="train, promote, audit or reserve; default: promote and audit.")] = None,
    tasks: Annotated[int | None, Option(min=1, help="Number of tasks per role; default: the scale's.")] = None,
    attempts: Annotated[int | None, Option(min=1, help="Attempts at each task; by default the scale's.")] = None,
    seed: Annotated[int, Option(help="Seed; compare two agents with the same one.")] = 0,
    scale: Annotated[str, Option(help="Scale that provides all other settings.")] = "smoke",
    out: Annotated[Path | None, Option(help="Folder of the episodes; default: under .ratchet/evaluations.")] = None,
    concurrency: Annotated[int | None, Option(min=1, help="Parallel episodes, or tool calls per worker.")] = None,
    data: Annotated[
        Path | None, Option(help="Play no episodes: measure perplexity on these exported SFT rows.")
    ] = None,
    max_length: Annotated[int | None, Option(min=16, help="With --data: maximum tokens of a row.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play held-out tasks several times each; show success, cost and causes of failure.

    The same command resumes an interrupted evaluation; a finished one is only read. A success that hack detection flags counts
    as a failure.

    Examples: `ratchet evaluate --policy teacher --seed 9`, `ratchet evaluate --taskset orders --role promote --attempts 8`,
    `ratchet evaluate --data data/datasets/sft/validation.jsonl`
    """
    from ratchet.components.operations.manual_evaluation import evaluate_agent, predict_held_out
    from ratchet.render import evaluation as pages

    playing = {"taskset": taskset, "role": role, "tasks": tasks, "out": out, "concurrency": concurrency}
    playing["system"] = _system_prompt(system)
    if data is not None:
        options = [name for name, value in {**playing, "attempts": attempts}.items() if value is not None]
        if options:
            raise ConfigurationError(f"--data plays no episodes; remove --{options[0]}")
        predicted = predict_held_out(policy, data, max_length=max_length)
        print_json(pages.prediction_record(predicted)) if as_json else pages.show_prediction(predicted)
        return
    if max_length is not None:
        raise ConfigurationError("--max-length is only valid with --data; remove it, or give held-out rows")
    agent_evaluation = evaluate_agent(policy, k=attempts, seed=seed, scale=scale, **playing)  # type: ignore[arg-type]
    print_json(pages.evaluation_record(agent_evaluation)) if as_json else pages.show_evaluation(agent_evaluation)


def collect(
    folder: Annotated[Path, Argument(help="Folder of the shards; an interrupted collection is resumed.")],
    policy: Annotated[str, Option(help=POLICY_HELP)] = "champion",
    system: Annotated[str | None, Option(help=SYSTEM_HELP)] = None,
    taskset: Annotated[str, Option(help="A taskset's name or folder.")] = "repair",
    role: Annotated[str, Option(help="train, promote, audit or reserve.")] = "train",
    tasks: Annotated[int | None, Option(min=1, help="Number of tasks; default: all.")] = None,
    attempts: Annotated[int, Option(min=1, help="Attempts at each task.")] = 4,
    seed: Annotated[int, Option(help="Seed of the order of tasks and of sampling.")] = 0,
    scale: Annotated[str, Option(help="Scale that provides all other settings: temperature, sandbox, ...")] = "smoke",
    concurrency: Annotated[int | None, Option(min=1, help="Parallel episodes, or tool calls per worker.")] = None,
    max_turns: Annotated[int | None, Option(min=1, help="Maximum replies; default: the environment's.")] = None,
    retries: Annotated[int | None, Option(min=0, help="Further tries after an infrastructure failure.")] = None,
    patience: Annotated[float | None, Option(min=0.1, help="Seconds to wait for a model that is down.")] = None,
    min_completed: Annotated[
        float | None, Option(min=0, max=1, help="Minimum share of episodes without infrastructure failure.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play tasks and keep every episode. Ctrl-C loses no finished one, and the same command resumes.

    Example: `ratchet collect /tmp/probe --policy teacher --tasks 20 --attempts 1`
    """
    from ratchet.components.operations.manual_evaluation import collect_into

    report = collect_into(
        folder,
        policy=policy,
        system=_system_prompt(system),
        taskset=taskset,
        role=role,
        tasks=tasks,
        attempts=attempts,
        seed=seed,
        scale=scale,
        concurrency=concurrency,
        max_turns=max_turns,
        retries=retries,
        patience=patience,
        min_completed=min_completed,
    )
    if as_json:
        print_json(report)
    else:
        print_fields({"played now" if name == "replayed" else name: value for name, value in report.items()})


BRANCH_PLAN = {"retries": 1, "patience": 60.0, "min_completed": 1e-9}
"""Collection settings of branches: an episode whose replay differs counts as an infrastructure failure; the command fails only
if all do."""


def branch(
    file: Annotated[Path, Argument(help="Trajectories, one JSON line each, or a folder of shards.")],
    folder: Annotated[Path, Argument(help="Folder of the branches; an interrupted run is resumed.")],
    policy: Annotated[str, Option(help=f"Policy that continues: {POLICY_HELP}")] = "champion",
    episode: Annotated[str | None, Option(help="Only the episode of this id.")] = None,
    turn: Annotated[list[int] | None, Option(min=0, help="First turn to replace (repeatable); default: each.")] = None,
    samples: Annotated[int, Option(min=1, help="Continuations at each turn.")] = 4,
    labels: Annotated[Path | None, Option(help="Write success rates as labels of the steps (JSON lines).")] = None,
    taskset: Annotated[str | None, Option(help="Name or folder; default: the recorded one.")] = None,
    temperature: Annotated[float, Option(min=0, help="Sampling temperature of the policy.")] = 0.8,
    max_turns: Annotated[int | None, Option(min=1, help="Turns of an episode, the shared ones included.")] = None,
    concurrency: Annotated[int, Option(min=1, help="Episodes at once.")] = 4,
    backend: Annotated[str, Option(help="auto, docker or local.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Continue recorded episodes from their turns with a policy, in fresh sandboxes, to estimate the value of each prefix.

    Example: `ratchet branch /tmp/probe/shard-00000.jsonl /tmp/branches --policy teacher --samples 2 --labels labels.jsonl`
    """
    from ratchet.components.rewards.monte_carlo_labels import monte_carlo_labels, prefix_values
    from ratchet.components.trajectories.shards import read_folder

    refuse_overwriting([file], labels)
    parents = _episodes_to_branch(file, episode)
    report = _play_branches(
        parents,
        folder,
        turn,
        {
            "taskset": taskset or _recorded_taskset(file, parents),
            "policy": policy,
            "attempts": samples,
            "temperature": temperature,
            "max_turns": max_turns,
            "concurrency": concurrency,
            "sandbox": {"backend": backend},
            "workers": 1,
            **BRANCH_PLAN,
        },
    )
    # All of the folder, also what an interrupted run has played: values are over every continuation.
    branches = list(read_folder(folder))
    if labels is not None:
        step_labels = list(monte_carlo_labels(parents, branches))
        write_json_lines(labels, step_labels)
        report["labels"] = len(step_labels)
    values = prefix_values(branches)
    if as_json:
        print_json({**report, "values": values})
        return
    print_fields({name: value for name, value in report.items() if value not in (None, {}, 0)})
    print_table(
        ("episode", "turns kept", "success", "± standard error", "of"),
        [
            (prefix.episode_id, prefix.turn, f"{prefix.rate:.2f}", f"{prefix.standard_error:.2f}", prefix.trials)
            for prefix in values
        ],
        title="Value of each prefix for the continuing policy",
    )


def _episodes_to_branch(file: Path, episode: str | None) -> "list[Trajectory]":
    """Return the episodes to branch, without infrastructure failures. Raises ConfigurationError where none is left."""
    from ratchet.components.rollouts.episode_replay import read_episodes

    trajectories = list(read_episodes(file, episode))
    parents = [trajectory for trajectory in trajectories if not trajectory.has_infrastructure_failure]
    if not parents:
        raise ConfigurationError(f"{file}: every episode is an infrastructure failure; collect them again")
    if len(parents) < len(trajectories):
        print_note(f"left out: {len(trajectories) - len(parents)} infrastructure failures")
    return parents


def _recorded_taskset(file: Path, parents: "list[Trajectory]") -> str:
    """Return the taskset of the episodes. Raises ConfigurationError where there are several."""
    names = sorted({parent.task.taskset for parent in parents})
    if len(names) > 1:
        raise ConfigurationError(
            f"{file} holds episodes of {', '.join(names)}; branch one taskset at a time: give a file of it, or --episode"
        )
    return names[0]


def _play_branches(
    parents: "list[Trajectory]", folder: Path, turns: list[int] | None, fields: dict[str, object]
) -> dict[str, object]:
    import msgspec

    from ratchet.components.operations.manual_evaluation import resolve_policy
    from ratchet.components.reporting.progress_display import ProgressDisplay
    from ratchet.components.rollouts.collection_plan import CollectPlan
    from ratchet.components.rollouts.episode_branching import branch as continue_from

    plan = CollectPlan.load({**fields, "policy": resolve_policy(str(fields["policy"]))})
    with ProgressDisplay() as display, display.step(f"branch {len(parents)} episodes") as step:
        report = continue_from(
            parents,
            plan,
            folder,
            turns=turns or None,
            on_progress=lambda progress: step.update(progress.done, progress.total, progress.remark()),
        )
    record: dict[str, object] = msgspec.to_builtins(report)
    return record
