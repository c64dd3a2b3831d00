"""API views of lineage, read as by `ratchet trace`. They run in a separate process (query_process.py), which imports MLflow."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ratchet.components.core import ConfigurationError, RatchetError
from ratchet.components.core.errors import count_text

from . import api_models as api
from .query_process import QueryProcess
from .token_views import DATASETS

if TYPE_CHECKING:
    from ratchet.components.datasets.lineage.model_lineage import TracedModel

MAX_NODES = 200
"""Lineage nodes in each direction."""
_process = QueryProcess("lineage")


def lineage(kind: str, id: str) -> api.LineageAnswer:
    """Return the neighbours of a node, of the build in the current folder. Raises DataError for an unknown one."""
    return api.LineageAnswer(**_process.ask(kind, id))


def find_lineage(kind: str, id: str) -> dict[str, Any]:
    """Return the fields of LineageAnswer. `kind` may be empty where `id` tells."""
    return _find_lineage(kind, id).model_dump()


def _find_lineage(kind: str, id: str) -> api.LineageAnswer:
    if kind == "night":
        raise ConfigurationError(f"open the episodes of {id} with the filter `source`; lineage begins at one of them")
    from ratchet.components.operations import lineage_queries as queries

    def model_node(model: "TracedModel") -> api.LineageNode:
        names = [*(f"@{alias}" for alias in model.aliases), *([model.night] if model.night else [])]
        return _node("model", f"{model.name}/{model.version}", ", ".join(names), label=model.label)

    if not id:
        nodes = [model_node(model) for model in reversed(queries.registered_models())]
        nodes += [
            _node("dataset", name) for name in sorted(path.parent.name for path in DATASETS.glob("*/manifest.json"))
        ]
        return api.LineageAnswer(down=nodes[:MAX_NODES])
    if kind == "episode" or (not kind and id.startswith("ep-")):
        impact = queries.trace_forward(id)
        down = [_node("episode", each, "branch") for each in impact.branches]
        for each in impact.datasets:
            for origin in each.rows:
                name = f"{each.dataset}/{origin.split}-{origin.row}"
                down.append(_node("row", name, origin.reason, label=f"{each.dataset} {origin.name}"))
        for affected in impact.models:
            node = model_node(affected.model) if affected.model else _node("model", affected.policy_version)
            down.append(node.model_copy(update={"note": f"{count_text(affected.rows, 'row')} of {affected.dataset}"}))
        down += [model_node(model) for model in impact.heirs]
        up = [_node("night", night) for night in impact.places]
        return _lineage_answer(_node("episode", id), up, down, impact.unknown)
    dataset, _, row = id.partition("/")
    found = queries.trace(f"{dataset}/{'/'.join(row.rsplit('-', 1))}" if kind == "row" and "-" in row else id)[0]
    up = [_node("dataset", found.dataset, count_text(len(found.rows), "row"))] if found.model else []
    up += [_node("night", night) for night in found.nights]
    up += [_node("episode", each.episode_id, f"{each.task_id}, {each.night}") for each in found.rollouts]
    if found.model:
        return _lineage_answer(model_node(found.model), up, [], [*found.wrong, *found.unknown])
    down = []
    with suppress(RatchetError):
        models = queries.registered_models()
        down = [model_node(model) for model in models if model.dataset == found.dataset and model.build == found.build]
    note = f"build {found.build[:12]} ({found.known_from}), code {found.code}" if found.build else found.known_from
    node = _node("row" if row else "dataset", id, note, label=found.subject)
    return _lineage_answer(node, up, down, [*found.wrong, *found.unknown])


def _node(kind: api.NodeKind, id: str, note: str | None = None, *, label: str = "") -> api.LineageNode:
    return api.LineageNode(kind=kind, id=id, label=label or id, note=note or None)


def _lineage_answer(
    node: api.LineageNode, up: Sequence[api.LineageNode], down: Sequence[api.LineageNode], unknown: Sequence[str]
) -> api.LineageAnswer:
    left = max(len(up), len(down)) - MAX_NODES
    more = [f"{left} more are not shown; `ratchet trace {node.id} --json` lists all"] if left > 0 else []
    return api.LineageAnswer(node=node, up=up[:MAX_NODES], down=down[:MAX_NODES], unknown=[*unknown, *more])
