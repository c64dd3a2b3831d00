"""The budget of a night: what it has spent is checked before each step, with what past nights say that the step takes.

A night that would exceed a limit of its scale stops there, as a killed one does, and goes on from its finished steps when
the same command is given with a raised limit.
"""

import contextlib
import itertools
import os
import time
from functools import cached_property
from pathlib import Path

from ratchet.components.core.errors import BudgetReached
from ratchet.components.core.home import home
from ratchet.components.nights.scale_config import NightBudget, is_billed
from ratchet.components.training.gpu_locks import visible_gpus
from ratchet.components.trajectories.shards import read_folder
from ratchet.flows.night_context import ROLLOUTS_FOLDER, NightContext
from ratchet.flows.night_plan import PlannedStep, planned_steps
from ratchet.flows.steps.collect import demonstrations_night
from ratchet.flows.steps.declare import night_declaration

MODEL_STEPS = ("collect ", "judge", "train ", "choose checkpoint", "look ", "evaluate")
"""Beginnings of the names of steps that run a model, on every GPU of the host."""


def keep_to_budget(tonight: NightContext) -> None:
    """Let the night check the budget of its scale, if there is one, before each further step; it raises BudgetReached."""
    if tonight.scale.budget != NightBudget():
        tonight.night.before_each_step(_BudgetCheck(tonight).check)


class _BudgetCheck:
    """Amounts of a night by the keys of its budget, in their units."""

    def __init__(self, tonight: NightContext) -> None:
        self.tonight, self.night, self.budget = tonight, tonight.night, tonight.scale.budget
        self.begun, self.before = time.monotonic(), sum(tonight.night.seconds.values())
        self.gpus = len(visible_gpus()) if self.budget.gpu_hours is not None else 0

    def check(self, step: str) -> None:
        """Raise BudgetReached where the step would exceed a limit, or one is reached already."""
        expected = self._expected(step)
        for name, limit in self.budget.model_dump(exclude_none=True).items():
            spent, more = getattr(self, f"_{name}")(), expected.get(name, 0.0)
            if spent + more > limit or (spent >= limit and name != "money"):
                about = f" and about {more:,.3g} expected of the step" if more else ""
                raise BudgetReached(
                    f"night {self.night.id} stops before '{step}': {spent:,.3g} {name} spent{about}, with a budget of "
                    f"{limit:,g}; raise budget.{name} of scale {self.tonight.scale.name} and repeat the command"
                )

    def _hours(self) -> float:
        return (self.before + time.monotonic() - self.begun) / 3600

    def _gpu_hours(self) -> float:
        return self.gpus * sum(s for step, s in self.night.seconds.items() if step.startswith(MODEL_STEPS)) / 3600

    def _disk_gb(self) -> float:
        return allocated_bytes(home(), Path("data"), Path(".dvc/cache")) / 1e9

    def _money(self) -> float:
        judged = (result for step, result in self.night.results.items() if step.startswith("judge"))
        billed = is_billed(self.tonight.scale.teacher) and "collect demonstrations" in self.night.results
        teacher = self._demonstration_money if billed else 0.0
        return teacher + sum(report.get("money") or 0.0 for report in judged)

    @cached_property
    def _demonstration_money(self) -> float:
        episodes = read_folder(ROLLOUTS_FOLDER / demonstrations_night(self.tonight), verify=False)
        usages = (turn.usage for episode in episodes for turn in episode.turns)
        return sum(usage.cost or 0.0 for usage in usages if usage is not None)

    @cached_property
    def _plan(self) -> dict[str, PlannedStep]:
        tonight = self.tonight
        steps = planned_steps(self.night, tonight.scale, tonight.recipe, night_declaration(tonight))
        return {step.name: step for step in steps}

    def _expected(self, step: str) -> dict[str, float]:
        """Return what the step is expected to add, as far as it is known. Interim looks are parts of the evaluation."""
        if (planned := self._plan.get("evaluate" if step.startswith("look ") else step)) is None:
            return {}
        looked = sum(seconds for name, seconds in self.night.seconds.items() if name.startswith("look "))
        seconds = max(0.0, (planned.seconds or 0.0) - (looked if planned.name == "evaluate" else 0.0))
        gpus = self.gpus if step.startswith(MODEL_STEPS) else 0
        return {
            "hours": seconds / 3600,
            "gpu_hours": gpus * seconds / 3600,
            "disk_gb": (planned.disk or 0) / 1e9,
            "money": planned.money or 0.0,
        }


def allocated_bytes(*folders: Path) -> int:
    """Return the disk space of the files below some folders; a file with several names counts once."""
    sizes = {}
    for place, _, names in itertools.chain.from_iterable(map(os.walk, folders)):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a running job removes its temporary files
                status = Path(place, name).lstat()
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())
