"""Uses: what tonight's models were trained on, sealed for whoever must know it later, also after the data is gone."""

from collections.abc import Iterator

import msgspec

from components.versioning.uses import Training
from tasks.registry import Model
from tasks.versions import seal_uses

from .build import TrainingData
from .tonight import Tonight

TRAININGS = {
    "register cold-start": "set aside demonstrations",
    "register challenger": "set aside data",
    "register control": "set aside old data",
}
"""The steps that registered a model tonight, each with the step that set its data aside."""


def record_uses(tonight: Tonight) -> None:
    """Seal which episodes each of tonight's models was trained on."""
    tonight.night.once("uses", lambda: seal_uses(tonight.id, list(_trainings(tonight))))


def _trainings(tonight: Tonight) -> Iterator[Training]:
    results = tonight.night.results
    for registered, aside in TRAININGS.items():
        if registered in results and aside in results:
            model = msgspec.convert(results[registered], Model)
            data = msgspec.convert(results[aside], TrainingData)
            yield Training(model.policy_version, data.dataset, data.build, data.train, data.validation)
