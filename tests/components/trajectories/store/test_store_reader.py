"""Every condition, order and bound of a query, against the same done by hand."""

import sqlite3
from collections import Counter

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from episodes import make_episode, night_of

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.datasets.parquet_tables import write_table
from ratchet.components.rewards.score_table import ScoreRow, write_parquet
from ratchet.components.trajectories.store.episode_index import RECORD_COLUMNS, LineLocation, record_columns
from ratchet.components.trajectories.store.store_reader import ORDERS, EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.trajectory import Agent, Provenance


def varied():
    """Forty episodes that differ in everything that can be asked for."""
    made = []
    for n in range(40):
        base = make_episode(f"repair/train-{n % 8:04d}", n, success=(True, False, None)[n % 3], version=f"w{n % 2}")
        task = msgspec.structs.replace(
            base.task,
            taskset=("repair", "advice")[n % 2],
            family=f"f{n % 5}",
            domain=("coding", "browser", "advisory")[n % 3],
        )
        moment = f"2026-11-{1 + n % 20:02d}T0{n % 9}:00:00Z" if n % 7 else None
        made.append(
            msgspec.structs.replace(
                base,
                episode_id=f"ep-{n:02d}",
                task=task,
                agent=Agent("a", ("transformers", "vllm")[n % 2], f"w{n % 2}"),
                provenance=Provenance(("ratchet", "openhands")[n % 2], collected_at=moment),
                outcome=msgspec.structs.replace(base.outcome, score=None if n % 4 else n / 40),
                content_hash="",
            )
        )
    return made


REWARDS = {f"ep-{n:02d}": (None if n % 6 == 0 else n / 40) for n in range(0, 40, 2)}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("asked") / "store"
    with StoreWriter(root, raw=True) as writer:
        writer.put(varied())
        rows = [ScoreRow(each, -1, -1, "total", "v1", value) for each, value in REWARDS.items()]
        rows += [ScoreRow(each, 0, 0, "redundancy", "v1", 0.25) for each in REWARDS]
        write_parquet(root.parent / "scores.parquet", ScoreRow, rows)
        assert writer.attach_table(root.parent / "scores.parquet") == 20
    return TrajectoryStore(root)


def ids(entries):
    return [each.episode_id for each in entries]


def by_hand(holds):
    return [each.episode_id for each in varied() if holds(each)]


CONDITIONS = [
    (EpisodeQuery(task="repair/train-0003"), lambda e: e.task.task_id == "repair/train-0003"),
    (EpisodeQuery(taskset="advice"), lambda e: e.task.taskset == "advice"),
    (EpisodeQuery(family="f2"), lambda e: e.task.family == "f2"),
    (EpisodeQuery(domain="browser"), lambda e: e.task.domain == "browser"),
    (EpisodeQuery(policy="vllm"), lambda e: e.agent.policy == "vllm"),
    (EpisodeQuery(policy_version="w0"), lambda e: e.agent.policy_version == "w0"),
    (EpisodeQuery(source="openhands"), lambda e: e.provenance.source == "openhands"),
    (EpisodeQuery(success=True), lambda e: e.outcome.success is True),
    (EpisodeQuery(success=False), lambda e: e.outcome.success is False),
    (EpisodeQuery(success="unknown"), lambda e: e.outcome.success is None),
    (EpisodeQuery(since="2026-11-10"), lambda e: (e.provenance.collected_at or "") >= "2026-11-10"),
    (EpisodeQuery(until="2026-11-10"), lambda e: "" < (e.provenance.collected_at or "") < "2026-11-10"),
    (
        EpisodeQuery(since="2026-11-05T04:00:00Z", until="2026-11-05T04:00:01+00:00"),
        lambda e: e.provenance.collected_at == "2026-11-05T04:00:00Z",
    ),
    (EpisodeQuery(min_reward=0.5), lambda e: (REWARDS.get(e.episode_id) or -1) >= 0.5),
    (EpisodeQuery(max_reward=0.5), lambda e: (REWARDS.get(e.episode_id) or 2) <= 0.5),
    (EpisodeQuery(min_reward=0.1, max_reward=0.3), lambda e: 0.1 <= (REWARDS.get(e.episode_id) or -1) <= 0.3),
    (
        EpisodeQuery(domain="coding", success=True, policy="transformers"),
        lambda e: e.task.domain == "coding" and e.outcome.success and e.agent.policy == "transformers",
    ),
    (EpisodeQuery(task="' OR 1=1 --"), lambda e: False),
]


@pytest.mark.parametrize(("query", "holds"), CONDITIONS)
def test_a_query_finds_what_fits_and_nothing_else(store, query, holds):
    assert ids(store.query(query)) == by_hand(holds)
    assert store.count(query) == len(by_hand(holds))
    assert [each.episode_id for each in store.read(query)] == by_hand(holds)


def test_conditions_here_find_some_and_not_all():
    sizes = [len(by_hand(holds)) for _, holds in CONDITIONS[:-1]]
    assert all(0 < each < 40 for each in sizes)


@pytest.mark.parametrize("order", ORDERS)
def test_descending_is_ascending_turned_round_with_the_unknown_last(store, order):
    up, down = store.query(EpisodeQuery(order=order)), store.query(EpisodeQuery(order=f"-{order}"))
    assert sorted(ids(up)) == sorted(ids(down)) == sorted(each.episode_id for each in varied())
    column = {"time": "collected_at", "task": "task_id", "episode": "episode_id"}.get(order, order)
    if order == "stored":
        assert ids(up) == [each.episode_id for each in varied()] == ids(down)[::-1]
        return
    values, reverse = [getattr(each, column) for each in up], [getattr(each, column) for each in down]
    known = [each for each in values if each is not None]
    assert known == sorted(known) and reverse[: len(known)] == known[::-1]
    assert all(each is None for each in values[len(known) :] + reverse[len(known) :])


def test_limit_and_offset_cut_the_same_order(store):
    whole = ids(store.query(EpisodeQuery(order="-reward")))
    pages = [ids(store.query(EpisodeQuery(order="-reward", limit=7, offset=start))) for start in range(0, 40, 7)]
    assert [each for page in pages for each in page] == whole
    assert store.count(EpisodeQuery(limit=3)) == 40
    assert store.query(EpisodeQuery(limit=0)) == []


def test_an_entry_says_what_the_record_says(store):
    entries = {each.episode_id: each for each in store.query()}
    for each in varied():
        found = entries[each.episode_id]
        assert (found.task_id, found.success, found.score) == (
            each.task.task_id,
            each.outcome.success,
            each.outcome.score,
        )
        assert (found.turns, found.steps, found.reward) == (3, 3, REWARDS.get(each.episode_id))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (EpisodeQuery(order="rewards"), "unknown order 'rewards'; did you mean 'reward'"),
        (EpisodeQuery(limit=-1), "must not be negative"),
        (EpisodeQuery(success="maybe"), "True, False or 'unknown', not 'maybe'"),
        (EpisodeQuery(since="yesterday"), "since 'yesterday' is no time; write 2026-11-21"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_in_one_line(store, query, said):
    with pytest.raises(ConfigurationError, match=said):
        store.query(query)


class TestFinding:
    def test_a_beginning_that_one_episode_has_is_enough(self, store):
        assert store.find_id("ep-07") == "ep-07"

    def test_a_beginning_that_several_have_is_refused(self, store):
        with pytest.raises(DataError, match="several episodes begin with 'ep-1': ep-10, ep-11, ep-12"):
            store.find_id("ep-1")

    def test_a_whole_identity_is_found_though_others_go_on_from_it(self, tmp_path):
        records = [msgspec.structs.replace(make_episode(), episode_id=each) for each in ("ep-1", "ep-11")]
        with StoreWriter(tmp_path / "s", raw=True) as writer:
            writer.put(records)
            assert writer.find_id("ep-1") == "ep-1"


class TestTables:
    def test_the_scores_of_each_step_come_back(self, store):
        assert store.scores("ep-02") == {(-1, -1): {"total": 0.05}, (0, 0): {"redundancy": 0.25}}
        assert store.scores("ep-01") == {}

    def test_null_is_not_zero(self, store):
        found = {each.episode_id: each.reward for each in store.query()}
        assert found["ep-00"] is None and "ep-00" in REWARDS
        assert "ep-00" not in ids(store.query(EpisodeQuery(max_reward=1.0)))

    def test_scores_that_came_before_their_episodes_count(self, tmp_path):
        records = night_of(3, 2)
        rows = [ScoreRow(each.episode_id, -1, -1, "total", "v1", n / 10) for n, each in enumerate(records)]
        write_parquet(tmp_path / "scores.parquet", ScoreRow, rows)
        with StoreWriter(tmp_path / "s", raw=True) as writer:
            writer.attach_table(tmp_path / "scores.parquet")
            writer.put(records)
            assert [each.reward for each in writer.query()] == [n / 10 for n in range(6)]

    def test_ranks_are_the_quality_and_the_later_table_counts(self, tmp_path):
        record = make_episode()
        schema = pa.schema([("episode_id", pa.string()), ("gdi", pa.float64())])
        with StoreWriter(tmp_path / "s", raw=True) as writer:
            writer.put([record])
            for n, value in enumerate((0.3, float("nan"), 0.7)):
                write_table(tmp_path / f"{n}.parquet", {"episode_id": [record.episode_id], "gdi": [value]}, schema)
                assert writer.attach_table(tmp_path / f"{n}.parquet") == 1
                assert writer.query()[0].quality == (None if n == 1 else value)
            assert writer.attach_table(tmp_path / "2.parquet") == 0, "the one that was attached last already"
            assert writer.attach_table(tmp_path / "0.parquet") == 1, "an older one again"
            assert writer.query(EpisodeQuery(max_quality=0.5, min_quality=0.2))[0].quality == 0.3

    def test_tables_outlive_the_index(self, tmp_path):
        record = make_episode()
        write_parquet(tmp_path / "t.parquet", ScoreRow, [ScoreRow(record.episode_id, -1, -1, "total", "v", 0.5)])
        with StoreWriter(tmp_path / "s", raw=True) as writer:
            writer.put([record])
            writer.attach_table(tmp_path / "t.parquet")
            writer.rebuild()
            assert writer.query()[0].reward == 0.5

    def test_a_table_of_something_else_is_refused(self, tmp_path):
        pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
        (tmp_path / "u.parquet").write_text("no table")
        with StoreWriter(tmp_path / "s", raw=True) as writer:
            for name, said in (
                ("t", "is no table of scores"),
                ("u", "cannot be read as a Parquet table"),
                ("v", "v.parquet"),
            ):
                with pytest.raises(DataError, match=said):
                    writer.attach_table(tmp_path / f"{name}.parquet")
            assert list((tmp_path / "s" / "tables").iterdir()) == []


@pytest.mark.slow
def test_no_query_over_a_hundred_thousand_takes_more_than_one_pass_over_the_index(tmp_path, monkeypatch):
    """Rows of the index alone, entered directly; SQLite's own instructions are counted, so that no clock decides."""
    instructions = Counter()
    connect = sqlite3.connect

    def counting(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_progress_handler(lambda: instructions.update(all=1000), 1000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counting)
    some = [record_columns(each) for each in varied()]
    at = RECORD_COLUMNS.index("episode_id")
    with StoreWriter(tmp_path / "s", raw=True) as writer:
        for start in range(0, 100_000, 10_000):
            rows = []
            for n in range(start, start + 10_000):
                fact = list(some[n % 40])
                fact[at] = f"ep-{n:024x}"
                fact[RECORD_COLUMNS.index("task_id")] = f"repair/train-{n % 250:04d}"
                rows.append((*LineLocation(0, n * 10_000, 10_000), *fact))
            writer.update_index(lambda index, rows=rows: index.upsert(rows, []))
        writer.update_index(
            lambda index: index.set_column("reward", ((f"ep-{n:024x}", n % 997 / 997) for n in range(100_000)))
        )
    store = TrajectoryStore(tmp_path / "s")
    queries = [query for query, _ in CONDITIONS]
    queries += [EpisodeQuery(order=f"{sign}{order}") for order in ORDERS for sign in ("", "-")]
    queries += [
        EpisodeQuery(min_reward=0.2, domain="coding", order="-reward"),
        EpisodeQuery(task="repair/train-0007", success=True),
    ]
    store.count()
    counts = {}
    for query in queries:
        instructions.clear()
        store.query(msgspec.structs.replace(query, limit=100))
        counts[query] = instructions["all"]
    assert not [query for query, count in counts.items() if count > 15 * 100_000]
