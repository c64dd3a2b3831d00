"""Tasks on MLflow's model registry: champion, challengers, anchor. These calls are never queued: an alias move must be
visible at once.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.core import DataError
from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.nights.night_models import NightModel, champion_model, download_model
from ratchet.components.reporting.progress_display import current_display
from ratchet.tasks import RETRY


@task(name="find champion", task_run_name="find champion", cache_policy=NO_CACHE, **RETRY)
def find_champion() -> NightModel | None:
    """Return the champion with its checkpoint on this machine, verified; None before the first."""
    return champion_model()


@task(name="register", task_run_name="register {title}", cache_policy=NO_CACHE, **RETRY)
def register(
    title: str,
    model: NightModel,
    *,
    night: str,
    run_id: str | None = None,
    lineage: Mapping[str, str] | None = None,
    name: str = "agent",
) -> NightModel:
    """Give a checkpoint a version in the registry; a checkpoint that is registered already keeps its version.

    `title`: role of the model, such as `challenger`. `run_id`: MLflow run that trained it. `lineage`: further tags
    about its data. `name`: of the registered model.
    """
    from ratchet.components.tracking import model_registry

    tags = {
        "night": night,
        "role": title,
        "nights": ",".join(model.nights),
        "build": model.build or "",
        **(lineage or {}),
    }
    model_version = model_registry.register(
        Path(model.checkpoint), policy_version=model.policy_version, name=name, run_id=run_id, tags=tags
    )
    return msgspec.structs.replace(model, version=model_version.version)


@task(name="promote", task_run_name="promote version {version}", cache_policy=NO_CACHE, **RETRY)
def promote(version: int, why: str, *, first: bool = False, over: int | None = None) -> int:
    """Point the alias `champion` at a version; return the version that holds it afterwards.

    Where a version other than `over` holds the alias by now, nothing is changed (`over` None: no check). Repeated calls
    change nothing. With `first` the version becomes the anchor too, if there is none.
    """
    from ratchet.components.tracking import champion_aliases

    return champion_aliases.promote(version, why=why, anchor=first, over=over).version


@task(name="roll back", task_run_name="roll back to version {version}", cache_policy=NO_CACHE, **RETRY)
def roll_back(version: int, why: str, *, over: int | None) -> int:
    """Point the alias `champion` back at an earlier champion; return the version that holds it afterwards.

    Where a version other than `over` holds the alias by now, nothing is changed.
    """
    from ratchet.components.tracking import champion_aliases

    return champion_aliases.roll_back(to=version, why=why, over=over).version


@task(name="move anchor", task_run_name="move anchor to version {version}", cache_policy=NO_CACHE, **RETRY)
def move_anchor(version: int) -> int | None:
    """Point the alias `anchor` at a champion, unless it was rolled back meanwhile; return the version that the alias
    points to afterwards.
    """
    from ratchet.components.tracking import champion_aliases

    return champion_aliases.move_anchor(version)


@task(name="find anchor", task_run_name="find anchor", cache_policy=NO_CACHE, **RETRY)
def find_anchor() -> NightModel | None:
    """Return the anchor, an old champion that the champion is compared with, downloaded and verified; None where it
    cannot play.

    A version whose files are missing or damaged, or that was never champion, cannot play, since it could not become
    champion again.
    """
    from ratchet.components.tracking import champion_aliases, model_registry

    anchor = model_registry.version_by_alias(champion_aliases.ANCHOR)
    if anchor is None or anchor.is_pruned or anchor.version not in champion_aliases.champions():
        return None
    try:
        return download_model(anchor)
    except DataError as error:
        current_display().say(f"no match against the anchor tonight: it cannot be loaded ({error})")
        return None


@task(name="keep decision", task_run_name="keep decision on version {version}", cache_policy=NO_CACHE, **RETRY)
def keep_decision(version: int, decision: Decision) -> int:
    """Store a night's decision record with the challenger's version. Repeated calls change nothing."""
    from ratchet.components.tracking import model_registry

    model_registry.store_decision(version, decision.text, decision_tags(decision))
    return version


def decision_tags(decision: Decision) -> dict[str, object]:
    """Return the registry tags that summarise a decision."""
    effect = decision.versus_champion
    return {
        "night": decision.night,
        "verdict": decision.verdict,
        "why": decision.why,
        "lead": effect.difference.value,
        "p_value": effect.p_value,
        "alpha": decision.superiority_level,
        "champion": decision.champion.agent.policy_version,
        "self_improvement": str(decision.self_improvement).lower(),
    }
