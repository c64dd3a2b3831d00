"""Uses: what tonight's models were trained on, sealed for whoever must know it later, also after the data is gone."""

from collections.abc import Iterator

import msgspec

from components.versioning.uses import Training
from tasks.registry import Model
from tasks.versions import seal_uses

from .build import TrainingData
from .tonight import Tonight

ASIDE = {"cold-start": "demonstrations", "control": "old data"}
"""What was set aside for a model, where not under its own name."""


def record_uses(tonight: Tonight) -> None:
    """Seal which episodes each of tonight's models was trained on."""
    tonight.night.once("uses", lambda: seal_uses(tonight.id, list(_trainings(tonight))))


def _trainings(tonight: Tonight) -> Iterator[Training]:
    """One of each model that was registered tonight; what has no rows of its own learned from all of tonight's."""
    results = tonight.night.results
    for step in results:
        title = step.removeprefix("register ")
        if title != step:
            aside = f"set aside {ASIDE.get(title, title)}"
            model = msgspec.convert(results[step], Model)
            data = msgspec.convert(results.get(aside, results["set aside data"]), TrainingData)
            yield Training(model.policy_version, data.dataset, data.build, data.train, data.validation)
