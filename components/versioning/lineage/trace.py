"""Trace: from a model, a dataset or a row back to every rollout, task, scorer, image and commit; each hash is recomputed.

    model -> build (its lock) -> dataset -> rows -> episodes -> rollouts (shards, records) -> tasks, images, commits

Nothing that cannot be found is passed over: what is not here is a check that does not hold, what was never recorded stands
in `unknown`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from components.datasets.lineage import (
    MANIFEST,
    Manifest,
    Origin,
    find_row,
    line_hashes,
    of_nights,
    origins,
    read_dataset_manifest,
    splits_of,
)
from components.protocol import DataError
from components.trajectories.parallel import Progress

from .check import RECORDED, Check, Count, counted, sha256_of
from .code import code_of
from .models import TracedModel
from .rollouts import Rollout, episodes_of, read_rollouts
from .state import DATASETS, State

TaskHashes = Callable[[str], Mapping[str, str] | None]
"""The recomputed `task_hash` of every task of a taskset; None where the taskset is not here."""
SHOWN = 20
"""Checks that do not hold, by name; all are counted."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Where something comes from. Counters are of episodes: by scorer's version, policy version, image digest, commit, source.

    `rows` and `rollouts` are all of them; `wrong` names the first checks that do not hold.
    """

    subject: str
    model: TracedModel | None = None
    dataset: str
    build: str | None
    known_from: str
    code: str | None
    nights: list[str]
    rows: list[Origin]
    rollouts: list[Rollout]
    tasks: int
    scorers: dict[str, int]
    policies: dict[str, int]
    images: dict[str, int]
    commits: dict[str, int]
    sources: dict[str, int]
    checks: dict[str, Count]
    wrong: list[str]
    unknown: list[str]

    @property
    def whole(self) -> bool:
        """Whether everything was reached, and every recomputed hash is the recorded one."""
        return all(not count.different and not count.absent for count in self.checks.values())


class _Walk:
    """What has been gathered on the way."""

    def __init__(self, checks: Sequence[Check], unknown: Sequence[str]) -> None:
        self.checks, self.unknown = list(checks), list(unknown)


def trace_dataset(
    state: State,
    dataset: str,
    *,
    row: str | None = None,
    model: TracedModel | None = None,
    known: Sequence[Check] = (),
    unknown: Sequence[str] = (),
    task_hashes: TaskHashes = lambda _: None,
    on_progress: Progress | None = None,
) -> Trace:
    """Walk back from a dataset of a build: from one row where `row` names it, from a model's own rows where `model` is given.

    `known` and `unknown` are what the caller has found already. Raises DataError where the dataset is not here, or has no such row.
    """
    path, walk = f"{DATASETS}/{dataset}", _Walk(known, unknown)
    files = state.standing(path) if state.stands else state.files(path)
    if files is None:
        raise state.absent(path)
    walk.checks += state.checks(path, "dataset")
    manifest = _manifest(files, walk)
    _tables(state, manifest, walk)
    rows = _rows(files, model, walk)
    if row is not None:
        rows = [find_row(rows, row)]
    wanted = {episode for each in rows for episode in each.episode_ids}
    rollouts = _rollouts(state, manifest, wanted, walk, on_progress)
    return _told(_subject(dataset, row, model), state, dataset, model, rows, rollouts, task_hashes, walk)


def trace_nights(
    state: State,
    model: TracedModel,
    used: Collection[str] = (),
    *,
    known: Sequence[Check] = (),
    unknown: Sequence[str] = (),
    task_hashes: TaskHashes = lambda _: None,
    on_progress: Progress | None = None,
) -> Trace:
    """Of a model whose rows are not here any more: the rollouts that a ledger says it `used`, else every one of its nights."""
    walk = _Walk(known, unknown)
    strange = state.known is None or state.known.lock_hash != model.build
    if strange:
        walk.checks.append(Check("build", f"the lock of {model.label}", model.build or RECORDED, None))
    else:
        walk.checks += state.checks(f"{DATASETS}/{model.dataset}", "dataset")
    what = (
        "which rows were made of these rollouts"
        if used
        else "which rollouts are in its data: all of its nights are shown"
    )
    walk.unknown.append(f"{what}; its dataset is not here any more")
    wanted = set(used) or {episode for night in model.nights for episode in episodes_of(state, night)}
    rollouts = _rollouts(state, Manifest(nights=list(model.nights)), wanted, walk, on_progress)
    found = _told(_subject(model.dataset, None, model), state, model.dataset, model, [], rollouts, task_hashes, walk)
    if strange:  # how another build scored them says nothing of this one
        where = f"not known here; its nights as of {state.name}"
        found = msgspec.structs.replace(found, build=model.build, known_from=where, code=None, scorers={})
    return found


def _told(
    subject: str,
    state: State,
    dataset: str,
    model: TracedModel | None,
    rows: list[Origin],
    rollouts: list[Rollout],
    task_hashes: TaskHashes,
    walk: _Walk,
) -> Trace:
    scorers = _scorers(state, {each.episode_id: each.night for each in rollouts}, walk)
    _tasks(rollouts, task_hashes, walk)
    return Trace(
        subject=subject,
        model=model,
        dataset=dataset,
        build=state.known.lock_hash if state.known else None,
        known_from=state.name,
        code=code_of(state.known, state.root) if state.known else None,
        nights=sorted({each.night for each in rollouts}),
        rows=rows,
        rollouts=rollouts,
        tasks=len({(each.task_id, each.task_hash) for each in rollouts}),
        scorers=scorers,
        policies=_counts(each.policy_version for each in rollouts),
        images=_counts(each.image_digest for each in rollouts),
        commits=_counts(each.commit for each in rollouts),
        sources=_counts(each.source for each in rollouts),
        checks=counted(walk.checks),
        wrong=[check.explain() for check in walk.checks if not check.holds][:SHOWN],
        unknown=walk.unknown,
    )


def _subject(dataset: str, row: str | None, model: TracedModel | None) -> str:
    if model is not None:
        return f"{model.name} version {model.version}" + (f", row {row}" if row else "")
    return f"{dataset}/{row}" if row else dataset


def _manifest(files: Mapping[str, Path], walk: _Walk) -> Manifest:
    """The manifest, after each file that it lists was hashed."""
    if MANIFEST not in files:
        walk.checks.append(Check("manifest", MANIFEST, RECORDED, None))
        return Manifest()
    manifest = read_dataset_manifest(files[MANIFEST])
    for name, entry in sorted(manifest.files.items()):
        found = sha256_of(files[name]) if name in files else None
        walk.checks.append(Check("dataset file", name, str(entry.get("sha256")), found))
    return manifest


def _tables(state: State, manifest: Manifest, walk: _Walk) -> None:
    """The tables that the dataset was exported from."""
    for name, expected in sorted(manifest.tables.items()):
        found = state.files(f"data/{name}")
        walk.checks.append(Check("table", name, expected, sha256_of(found[""]) if found and "" in found else None))


def _rows(files: Mapping[str, Path], model: TracedModel | None, walk: _Walk) -> list[Origin]:
    """The rows, each compared with its line; of a model those of its nights, compared with what it was trained on."""
    rows = origins(files)
    lines = {split: line_hashes(path) for split, path in splits_of(files).items()}
    for row in rows:
        own = lines.get(row.split, [])
        walk.checks.append(Check("row", row.name, row.sha256, own[row.row] if row.row < len(own) else None))
    extra = sum(map(len, lines.values())) - len({row.name for row in rows})
    if len({row.name for row in rows}) < len(rows):
        walk.checks.append(Check("row", "a row that stands twice", RECORDED, "twice"))
    if extra > 0:
        walk.checks.append(Check("row", f"{extra} more lines than rows", RECORDED, "extra"))
    if any(row.reason is None for row in rows):
        walk.unknown.append("why each row is in: the dataset was made before rows.parquet was kept")
    return rows if model is None else _of_model(rows, files, model, walk)


def _of_model(rows: list[Origin], files: Mapping[str, Path], model: TracedModel, walk: _Walk) -> list[Origin]:
    kept: dict[str, set[int]] = {}
    for split, path in splits_of(files).items():
        kept[split], found = of_nights(path, split, model.nights)
        recorded = model.data.get(split)
        if recorded is not None:
            walk.checks.append(Check("training data", f"{split}.jsonl", recorded, found))
        elif split == "train":
            walk.unknown.append("the hash of the file that the training read: the model was registered without it")
    if model.manifest is not None:
        walk.checks.append(Check("manifest", MANIFEST, model.manifest, sha256_of(files[MANIFEST])))
    return [row for row in rows if row.row in kept.get(row.split, ())]


def _rollouts(
    state: State, manifest: Manifest, wanted: set[str], walk: _Walk, on_progress: Progress | None
) -> list[Rollout]:
    nights = manifest.nights or state.nights()
    if manifest.dataset and not manifest.shards:
        walk.unknown.append("the shards that the dataset was made from: its manifest names none")
    found: dict[str, Rollout] = {}
    for night in nights:
        read = read_rollouts(state, night, wanted, manifest.shards.get(night, {}), on_progress)
        walk.checks += read.checks
        for rollout in read.rollouts:
            found.setdefault(rollout.episode_id, rollout)
    walk.checks += [Check("rollout", episode, episode, None) for episode in sorted(wanted - found.keys())]
    return [found[episode] for episode in sorted(found)]


def _scorers(state: State, nights: Mapping[str, str], walk: _Walk) -> dict[str, int]:
    """How many of the episodes each version of the scorer scored; their tables are compared with the lock."""
    from components.quality.tables import read_table

    versions: Counter[str] = Counter()
    for night in sorted(set(nights.values())):
        path = f"data/scores/{night}.parquet"
        files = state.files(path)
        if files is None:
            walk.checks += list(state.checks(path, "scores")) or [Check("scores", path, RECORDED, None)]
            continue
        walk.checks += state.checks(path, "scores")
        versions += _versions(read_table(files[""], ["episode_id", "turn", "scorer", "version"]), nights)
    return dict(sorted(versions.items()))


def _versions(table: object, episodes: Collection[str]) -> "Counter[str]":
    """Versions of the totals of those episodes, from a table of scores."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert isinstance(table, pa.Table)
    totals = table.filter(pc.and_(pc.equal(table["turn"], -1), pc.equal(table["scorer"], "total")))
    own = totals.filter(pc.is_in(totals["episode_id"], pa.array(list(episodes), pa.string())))
    return Counter(own["version"].to_pylist())


def _tasks(rollouts: Sequence[Rollout], task_hashes: TaskHashes, walk: _Walk) -> None:
    """The hash of every task that was played, recomputed where its taskset is here."""
    played = sorted({(each.taskset, each.task_id, each.task_hash) for each in rollouts})
    for taskset in sorted({each[0] for each in played}):
        known = task_hashes(taskset)
        if known is None:
            walk.unknown.append(f"the tasks of taskset '{taskset}': it is not here, and its hashes were not recomputed")
            continue
        for _, task_id, task_hash in (each for each in played if each[0] == taskset):
            walk.checks.append(Check("task", task_id, task_hash, known.get(task_id)))


def _counts(values: "Iterator[str | None]") -> dict[str, int]:
    return dict(sorted(Counter(value or "not recorded" for value in values).items()))


def require(state: State, dataset: str) -> None:
    """Raises DataError that lists the datasets where there is none of that name."""
    known = state.datasets()
    if dataset not in known:
        raise DataError(f"{state.name} has no dataset '{dataset}'; datasets: {', '.join(known) or 'none'}")
