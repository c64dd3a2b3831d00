"""Rows of the table of tasks: for each task that was played its cluster, its split, and what of evaluation it has met."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from components.protocol import Role, TaskSpec
from components.quality.contamination import contents
from components.quality.split import Placed, Placing, place
from components.quality.tasksets import Tasks
from components.trajectories.record import TaskRef

from .params import DuplicatesParams
from .tasks import TaskIndex
from .words import bare, plain


class Met(msgspec.Struct, frozen=True, order=True):
    """An evaluation task that another task has met, and how, in words."""

    task_id: str
    how: str


Leaks = Mapping[str, Sequence[Met]]
"""What was found in the episodes of a task, by its `task_id`."""


class TaskRow(msgspec.Struct, frozen=True):
    """One row of `tasks.parquet`. `split` is None for a task that is left out, and `reason` says why."""

    task_id: str
    task_hash: str
    taskset: str
    family: str
    kind: str
    unit: str
    cluster: str
    split: str | None
    contaminated_by: str | None
    reason: str | None


def task_rows(seen: Sequence[TaskRef], tasksets: Tasks, leaks: Leaks, params: DuplicatesParams) -> list[TaskRow]:
    """A row a task, by `task_id`. `seen`: the versions of tasks in the order in which they were first played.

    The train tasks of the tasksets are placed first, played or not: their split depends on nothing that was played.
    """
    listed = {_key(task) for task in tasksets.train}
    strangers = [task for task in seen if _key(task) not in listed]
    order: list[TaskSpec | TaskRef] = [*tasksets.train, *strangers]
    near = _neighbours(order, tasksets, params.near)
    met = _met(seen, tasksets, {_key(task): found for task, found in zip(order, near, strict=True)})
    refused = {_key(task): _refusal(task, (*met[_key(task)], *leaks.get(task.task_id, ())), params) for task in seen}
    placed = place(list(_placings(order, near, refused, tasksets, params)), params.shares)
    where = {_key(task): its for task, its in zip(order, placed, strict=True)}
    versions: dict[str, list[TaskRef]] = defaultdict(list)
    for task in seen:
        versions[task.task_id].append(task)
    return [
        _row(own, [where[_key(task)] for task in own], {*leaks.get(name, ())}.union(*(met[_key(task)] for task in own)),
             unit_of(own[0], tasksets, params))
        for name, own in sorted(versions.items())
    ]  # fmt: skip


def _key(task: TaskSpec | TaskRef) -> tuple[str, str]:
    return task.task_id, task.task_hash


def _told(task: TaskSpec | TaskRef) -> bytes:
    return bare(plain(task.description))


def unit_of(task: TaskSpec | TaskRef, tasksets: Tasks, params: DuplicatesParams) -> str:
    """What a split never cuts: the task's family, or the task alone."""
    head = tasksets.heads.get(task.taskset)
    alone = params.split_by == "task" or (
        params.split_by == "taskset" and head is not None and head.split_by == "instance"
    )
    return task.task_id if alone or not task.family else f"{task.taskset}/{task.family}"


def _neighbours(order: Sequence[TaskSpec | TaskRef], tasksets: Tasks, near: float) -> list[list[int]]:
    """For each task the earlier ones with nearly the same description; held-out ones have numbers below 0."""
    index = TaskIndex(near)
    held = [_told(task) for task in tasksets.held_out]
    told = [_told(task) for task in order]
    index.learn([*held, *told[: len(tasksets.train)]])
    index.add(held)
    return [[number - len(held) for number in found] for found in index.add(told)]


def _placings(
    order: Sequence[TaskSpec | TaskRef],
    near: Sequence[Sequence[int]],
    refused: Mapping[tuple[str, str], str | None],
    tasksets: Tasks,
    params: DuplicatesParams,
) -> Iterator[Placing]:
    """What the split needs to know of each task. Another version of a task stands where the first one does."""
    first: dict[str, int] = {}
    for number, (task, found) in enumerate(zip(order, near, strict=True)):
        earlier = {other for other in found if other >= 0} | {first.setdefault(task.task_id, number)} - {number}
        yield Placing(
            task.task_id,
            unit_of(task, tasksets, params),
            f"{task.taskset}/{task.kind}",
            tuple(sorted(earlier)),
            refused.get(_key(task)),
        )


def _refusal(task: TaskRef, met: Sequence[Met], params: DuplicatesParams) -> str | None:
    if task.task_id in params.leave_out:
        return "duplicates.leave_out of the parameters names it"
    first = min(met, default=None)
    return None if first is None else f"contaminated: {first.how} {first.task_id}"


def _met(
    seen: Sequence[TaskRef], tasksets: Tasks, near: Mapping[tuple[str, str], Sequence[int]]
) -> dict[tuple[str, str], list[Met]]:
    """What of evaluation each version of a task is: by name, by hash, by its description, by its whole content."""
    held = tasksets.held_out
    ids, hashes = {task.task_id for task in held}, {task.task_hash: task.task_id for task in held}
    told = {_told(task) for task in tasksets.train}
    listed = {_key(task): task for task in tasksets.train}
    same = _same_content(held, [listed[_key(task)] for task in seen if _key(task) in listed])
    found: dict[tuple[str, str], list[Met]] = {}
    for task in seen:
        met = []
        if task.task_id in ids:
            met.append(Met(task.task_id, "it is the held-out task"))
        elif task.task_hash in hashes:
            met.append(Met(hashes[task.task_hash], "it has the task_hash of"))
        elif task.role != Role.TRAIN:
            met.append(Met(task.task_id, f"it was played as a {task.role} task:"))
        elif _key(task) in listed:
            met += [Met(name, "it has the content of") for name in same[task.task_id]]
        elif _told(task) not in told:  # words that a train task of the tasksets has too give nothing away
            others = [held[other].task_id for other in near[_key(task)] if other < 0]
            met += [Met(name, "its description is that of") for name in others]
        found[_key(task)] = met
    return found


def _same_content(held: Sequence[TaskSpec], train: Sequence[TaskSpec]) -> dict[str, list[str]]:
    """The held-out tasks with nearly the same content as each of the train tasks, by its `task_id`."""
    index = TaskIndex(CONTENT)
    if train:
        index.add([contents(task) for task in held])
    found = index.add([contents(task) for task in train])
    return {
        task.task_id: [held[other].task_id for other in others if other < len(held)]
        for task, others in zip(train, found, strict=True)
    }


CONTENT = 0.8
"""Jaccard similarity of whole tasks (files, worlds and references too) from which two are the same problem."""


def _row(versions: Sequence[TaskRef], placed: Sequence[Placed], met: set[Met], unit: str) -> TaskRow:
    """The row of a task. Where one of its versions is left out, the task is."""
    first, last = versions[0], next((each for each in placed if each.split is None), placed[-1])
    return TaskRow(
        task_id=first.task_id,
        task_hash=versions[-1].task_hash,
        taskset=first.taskset,
        family=first.family,
        kind=first.kind,
        unit=unit,
        cluster=last.cluster,
        split=last.split,
        contaminated_by=", ".join(sorted({each.task_id for each in met})) or None,
        reason=last.reason,
    )
