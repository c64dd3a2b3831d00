"""How the nights of this home stand, read from their state files; no server is asked."""

import msgspec

from tasks.servers import recorded

from .lock import holder
from .state import Night, nights


class NightRow(msgspec.Struct, frozen=True):
    """One night. Success rates are shares of the promote attempts; None where they are not known yet."""

    night: str
    scale: str
    seed: int
    state: str
    verdict: str | None = None
    champion: str | None = None
    challenger: str | None = None
    control: str | None = None


def night_rows() -> list[NightRow]:
    """Every night, oldest first."""
    running = holder()
    return [_row(night, running) for night in nights()]


def state_of(night: Night, running: str | None) -> str:
    """How far a night is; `running` is the one that holds the lock now."""
    if night.finished:
        return "finished"
    done = len(night.results)
    return f"running, {done} steps done" if running == night.id else f"interrupted after {done} steps"


def _row(night: Night, running: str | None) -> NightRow:
    decision, state = night.results.get("decision"), state_of(night, running)
    if decision is None:
        return NightRow(night.id, night.scale, night.seed, state)
    rates = {
        name: f"{100 * decision[name]['success']['value']:.1f} %" if decision.get(name) else None
        for name in ("champion", "challenger", "control")
    }
    return NightRow(night.id, night.scale, night.seed, state, decision["verdict"], **rates)


def servers() -> dict[str, str | None]:
    """The addresses of the servers that run for this home now."""
    prefect = recorded("prefect")
    return {"Prefect": prefect.removesuffix("/api") if prefect else None, "MLflow": recorded("mlflow")}
