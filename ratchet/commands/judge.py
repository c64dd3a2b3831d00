"""Commands on judges: judge, rubrics."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, DataError, list_domains, load_domain
from ratchet.components.core.files import open_atomically, refuse_overwriting
from ratchet.components.core.home import home
from ratchet.render import judgements as pages
from ratchet.render.terminal import print_fields, print_json, print_note, print_table, print_text

if TYPE_CHECKING:
    from ratchet.components.rewards.annotation_records import Judgement
    from ratchet.components.rewards.judges.judge import Judge
    from ratchet.components.rewards.judges.judge_config import JudgeConfig
    from ratchet.components.rewards.judges.judgement_cache import JudgementCache
    from ratchet.components.rewards.judges.judging_run import JudgingProgress
    from ratchet.components.trajectories.trajectory import Trajectory

CACHE = "judgements"
"""Folder under .ratchet that caches every judgement."""


def judge(
    log: Annotated[Path, Argument(help="Trajectories: a file, a log, or a folder of either.")],
    config: Annotated[
        Path | None, Option(help="YAML file: models, mode, budget, … (Ratchet's docs/judging.md).")
    ] = None,
    model: Annotated[list[str] | None, Option(help="MODEL@URL of an OpenAI-compatible server (repeatable).")] = None,
    prm: Annotated[Path | None, Option(help="A trained step reward model (method prm): no server, no cost.")] = None,
    mode: Annotated[Literal["step", "trajectory"] | None, Option(help="Judge single steps or whole episodes.")] = None,
    rubric: Annotated[Path | None, Option(help="YAML file of a rubric that replaces the domain's.")] = None,
    calls: Annotated[int | None, Option(min=0, help="Maximum number of requests, with retries; default: 1000.")] = None,
    episodes: Annotated[int | None, Option(min=1, help="Maximum number of episodes; groups are not split.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Also write these judgements to a file.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only count missing judgements and the requests for them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let models judge trajectories by the rubric of their domain. Cached judgements are never paid for again.

    Secrets are removed before anything leaves this machine. Each judgement is saved at once in .ratchet/judgements, where
    `ratchet score --judgements .ratchet/judgements` and `ratchet label` read it; after Ctrl-C the same command continues.

    Examples: `ratchet judge episodes.jsonl --model judge-7b@http://127.0.0.1:8000/v1 --calls 200`,
    `ratchet judge data/rollouts/2026-11-21-a1b2 --config judge.yaml --dry-run`,
    `ratchet judge episodes.jsonl --prm runs/prm/checkpoint`
    """
    import msgspec

    from ratchet.components.rewards.judges.judgement_cache import JudgementCache

    if prm is None and config is None and not model:
        raise ConfigurationError("no judge was given; give --model MODEL@URL, --config FILE or --prm FOLDER")
    refuse_overwriting([path for path in (log, config, rubric) if path is not None], out)
    cache = JudgementCache(home() / CACHE)
    judgements: list[Judgement] = []
    errors: list[str | None] = []
    with open_atomically(out) if out else contextlib.nullcontext() as file:
        for judgement in _judgements(
            log, prm, cache, _judge_config(config, model, mode, rubric, calls, episodes), dry_run
        ):
            if file is not None:
                file.write(msgspec.json.encode(judgement) + b"\n")
            errors.append(judgement.error)
            print_json(judgement) if as_json else judgements.append(judgement)
    if judgements:
        pages.show_judgements(judgements)
    if errors and all(errors):
        raise DataError(
            f"no judgement has scores ({errors[-1]}); try another `structured` or a larger `max_tokens` in --config, "
            "and another `revision` to judge again"
        )


def rubrics(
    domain: Annotated[str | None, Argument(help="A domain, or the YAML file of a rubric.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the rubrics of all domains, or one of them with its criteria, anchors and weights.

    Examples: `ratchet rubrics`, `ratchet rubrics coding`, `ratchet rubrics mine.yaml`
    """
    from ratchet.components.rewards.judges.judge_rubric import bundled_rubrics as bundled
    from ratchet.components.rewards.judges.judge_rubric import describe_rubric, load_rubric, select_rubric

    if domain is None:
        domain_rubrics = {name: select_rubric(load_domain(name)) for name in bundled()}
        if as_json:
            for name, rubric in domain_rubrics.items():
                print_json(describe_rubric(rubric, rubric.weights(load_domain(name))))
            return
        print_table(
            ("domain", "rubric", "criteria"),
            [(name, rubric.version, ", ".join(rubric.lines)) for name, rubric in domain_rubrics.items()],
        )
        print_text("`ratchet rubrics DOMAIN` shows what each criterion asks")
        return
    file = Path(domain)
    if file.suffix in (".yaml", ".yml", ".json"):
        profile = load_domain("generic")
        rubric = select_rubric(profile, file)
    elif domain in list_domains():
        profile = load_domain(domain)
        rubric = load_rubric(domain)
    else:
        raise ConfigurationError(f"unknown domain '{domain}'; known: {', '.join(list_domains())}, or give a YAML file")
    described = describe_rubric(rubric, rubric.weights(profile))
    print_json(described) if as_json else pages.show_rubric(described)


def _judge_config(
    config: Path | None,
    models: list[str] | None,
    mode: str | None,
    rubric: Path | None,
    calls: int | None,
    episodes: int | None,
) -> "JudgeConfig | None":
    """Return the file's configuration with overrides; None without file and model."""
    from ratchet.components.rewards.judges.judge_config import JudgeConfig

    if config is None and not models:
        return None
    values: dict[str, Any] = {}
    if config is not None:
        values = JudgeConfig.load(config).model_dump(exclude_unset=True)
    if models:
        values["models"] = []
        for model in models:
            name, _, address = model.rpartition("@")
            if not name:
                raise ConfigurationError(f"--model {model}: give MODEL@URL, such as judge-7b@http://127.0.0.1:8000/v1")
            values["models"].append({"model": name, "base_url": address})
    overrides = {"mode": mode, "rubric": rubric, "episodes": episodes}
    values |= {name: value for name, value in overrides.items() if value is not None}
    if calls is not None:
        values["budget"] = {**values.get("budget", {}), "calls": calls}
    return JudgeConfig.load(values)


def _judgements(
    log: Path, prm: Path | None, cache: "JudgementCache", config: "JudgeConfig | None", dry_run: bool
) -> Iterator["Judgement"]:
    """Yield judgements of the step reward model, then of the judges."""
    from ratchet.components.interop.log_conversion import LogStream
    from ratchet.components.nights.night_sampling import sample_groups
    from ratchet.components.rewards.judges.judging_run import count_pending, open_judges

    if prm is not None and not dry_run:
        yield from _predict_judgements(iter(LogStream(log)), prm, cache)
    if config is None:
        return
    chosen = sample_groups(LogStream(log), config.episodes, 0)
    if not chosen:
        print_note(f"{log} has nothing to judge: no episode with a step, except infrastructure failures")
        return
    with open_judges(config) as judges:
        if dry_run:
            missing, calls = count_pending(chosen, judges, cache)
            print_fields({"episodes": len(chosen), "judgements missing": missing, "requests without retries": calls})
            return
        yield from _request_judgements(chosen, judges, cache, config)


def _request_judgements(
    chosen: "list[Trajectory]", judges: "list[Judge]", cache: "JudgementCache", config: "JudgeConfig"
) -> Iterator["Judgement"]:
    from ratchet.components.models.endpoint import ModelUnavailable
    from ratchet.components.reporting.progress_display import ProgressDisplay, current_display
    from ratchet.components.rewards.judges.judge_budget import JudgeBudget
    from ratchet.components.rewards.judges.judging_run import judge_all

    for domain in {trajectory.task.domain for trajectory in chosen}:
        judges[0].rubric(load_domain(domain))  # an invalid rubric is reported before any request
    budget = JudgeBudget(config.budget)
    last: list[JudgingProgress] = []
    with ProgressDisplay(), current_display().step("judge") as step:

        def progress(now: "JudgingProgress") -> None:
            last[:] = [now]
            step.update(now.done, now.total, f"{now.cached} cached, {now.made} new, {now.spent.calls} requests")

        yield from judge_all(chosen, judges, cache, budget, progress)
    if not last:
        return
    now = last[0]
    if now.left and now.trouble and not now.made:
        raise ModelUnavailable(
            f"the budget was spent on failed requests, the last with {now.trouble}; check that the server runs, then try again"
        )
    if now.left:
        failed = f", partly on failed requests ({now.trouble})" if now.trouble else ""
        print_note(
            f"the budget is used up{failed}: {now.left} judgements are missing; repeat the command "
            "with a larger budget (--calls, or `budget:`)"
        )


def _predict_judgements(
    trajectories: "Iterator[Trajectory]", folder: Path, cache: "JudgementCache"
) -> Iterator["Judgement"]:
    """Yield judgements of a step reward model, cached or new."""
    from ratchet.components.training.prm.step_model_card import read_card

    read_card(folder)  # a folder without a step reward model is reported before torch is loaded, which takes seconds
    from ratchet.components.training.prm.predict_job import cached_predictions
    from ratchet.components.training.prm.step_prediction import StepModel

    yield from cached_predictions(StepModel.load(folder), trajectories, cache)
