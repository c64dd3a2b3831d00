"""Whose checkpoints are kept: an alias, its lineage, the newest; nothing else."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from fake_registry import Registry, installed
from hypothesis import given
from hypothesis import strategies as st

from ratchet.components.core import ConfigurationError
from ratchet.components.tracking import champion_aliases, checkpoint_retention
from ratchet.components.tracking.checkpoint_retention import retention_reasons
from ratchet.components.tracking.model_registry import ModelRef


def ref(version: int, base: str | None = "", **tags: str) -> ModelRef:
    """Version N is of policy pN; `base` None: it does not say from what it began."""
    known = tags if base is None else {"base": base} | tags
    return ModelRef("agent", version, f"p{version}", f"m-{version}", None, f"s3://b/m-{version}", f"h{version}", known)


def kept(refs: list[ModelRef], named: dict[str, int], keep: int = 0) -> dict[int, str | None]:
    return {each.version: each.why for each in retention_reasons(refs, named, keep)}


LINE = [ref(1), ref(2, "p1"), ref(3, "p1"), ref(4, "p2"), ref(5, "p2")]
"""1 began; 2 and 3 from it, 4 and 5 from 2."""


def test_an_alias_and_what_it_descends_from_are_kept() -> None:
    assert kept(LINE, {"champion": 4}) == {
        1: "@champion descends from it", 2: "@champion descends from it", 3: None, 4: "@champion", 5: None
    }  # fmt: skip


def test_every_alias_is_kept() -> None:
    found = kept(LINE, {"champion": 5, "previous": 3, "tried": 1})
    assert {version: why for version, why in found.items() if why} == {
        1: "@tried", 2: "@champion descends from it", 3: "@previous", 5: "@champion"
    }  # fmt: skip


def test_the_newest_are_kept_beside() -> None:
    assert kept(LINE, {"champion": 1}, keep=2) == {
        1: "@champion", 2: None, 3: None, 4: "among the newest 2", 5: "among the newest 2"
    }  # fmt: skip
    assert set(kept(LINE, {}, keep=99).values()) == {"among the newest 99"}
    assert set(kept(LINE, {}).values()) == {None}


def test_a_version_that_does_not_say_where_it_began_keeps_all_that_are_older() -> None:
    found = kept([ref(1), ref(2, None), ref(3, "p2"), ref(4, "p1")], {"champion": 3})
    assert found == {
        1: "@champion may descend from it: version 2 does not say from what it began",
        2: "@champion descends from it", 3: "@champion", 4: None,
    }  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[ModelRef], dict[str, int], set[str]]:
    """Versions that began from earlier ones (or from none, or do not say from what), some of them registered again or pruned;
    aliases; and what unfinished nights use.
    """
    refs: list[ModelRef] = []
    for version in range(1, draw(st.integers(1, 12)) + 1):
        policy = draw(st.sampled_from([version, version, version, *range(1, version)]))
        base = draw(st.sampled_from(["", None, *(each.policy_version for each in refs)]))
        tags = {"pruned": "true"} if draw(st.integers(0, 5)) == 0 else {}
        refs.append(msgspec.structs.replace(ref(version, base, **tags), policy_version=f"p{policy}"))
    numbers = st.integers(1, len(refs))
    named = draw(st.dictionaries(st.sampled_from(["champion", "previous", "anchor", "mine"]), numbers))
    return refs, named, {f"p{number}" for number in draw(st.sets(numbers, max_size=2))}


def ancestors(found: ModelRef, refs: list[ModelRef]) -> Iterator[ModelRef]:
    """From what a version may descend: by its tag, else from anything older."""
    base = found.tags.get("base")
    older = [each for each in refs if each.version < found.version] if base is None else []
    yield from older or (each for each in refs if base and each.policy_version == base)


@given(histories(), st.integers(0, 3))
def test_nothing_goes_that_an_alias_or_an_unfinished_night_may_descend_from_and_everything_else_does(
    history: tuple[list[ModelRef], dict[str, int], set[str]], keep: int
) -> None:
    refs, named, in_use = history
    needed = {each.version for each in refs if each.version in named.values() or each.policy_version in in_use}
    while (
        more := {each.version for found in refs if found.version in needed for each in ancestors(found, refs)} - needed
    ):
        needed |= more
    present = [each.version for each in refs if not each.is_pruned]
    reasons = retention_reasons(refs, named, keep, dict.fromkeys(in_use, "an unfinished night"))
    assert {each.version for each in reasons if each.why} == (needed & {*present}) | {
        *present[max(0, len(present) - keep) :]
    }


def test_what_was_pruned_is_not_counted_and_still_leads_to_its_ancestors() -> None:
    refs = [ref(1), ref(2, "p1", pruned="true"), ref(3, "p2"), ref(4, "p3")]
    assert kept(refs, {"champion": 3}, keep=1) == {
        1: "@champion descends from it",
        3: "@champion",
        4: "among the newest 1",
    }


def test_a_circle_of_bases_ends() -> None:
    assert set(kept([ref(1, "p2"), ref(2, "p1")], {"champion": 2})) == {1, 2}


class Store:
    """A registry of versions that began from none, and what was removed of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registry = installed(Registry(), monkeypatch)
        self.removed: list[int] = []
        self.on_mark: Callable[[], object] = lambda: None
        monkeypatch.setattr(checkpoint_retention, "client", lambda: self)
        monkeypatch.setattr(checkpoint_retention, "versions", self.versions)
        monkeypatch.setattr(checkpoint_retention, "unfinished_models", lambda name: [])
        monkeypatch.setattr(checkpoint_retention, "checkpoint_size", lambda ref: 1)
        monkeypatch.setattr(checkpoint_retention, "_remove", lambda ref, staying: self.removed.append(ref.version))

    def versions(self, name: str) -> list[ModelRef]:
        found = [self.registry.get(int(version)) for version in self.registry.versions]
        return [ModelRef(name, each.version, *_rest(each)) for each in found]

    def set_model_version_tag(self, *given: str) -> None:
        self.registry.set_model_version_tag(*given)
        self.on_mark()

    def delete_model_version_tag(self, *given: str) -> None:
        self.registry.delete_model_version_tag(*given)


def _rest(found: ModelRef) -> tuple[Any, ...]:
    """All of a version but its name and number; it began from none."""
    return found.policy_version, found.model_id, None, "", found.checkpoint_hash, {"base": ""} | found.tags


@pytest.fixture
def store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return Store(monkeypatch)


def test_a_promotion_waits_until_it_is_marked_what_goes_and_is_refused(store: Store) -> None:
    champion_aliases.promote(1)
    refused: list[str] = []

    def other() -> None:
        try:
            champion_aliases.promote(2)
        except ConfigurationError as error:
            refused.append(str(error))

    racing = threading.Thread(target=other)
    store.on_mark = lambda: racing.ident or racing.start()
    assert checkpoint_retention.prune_checkpoints(0).versions == [2, 3, 4, 5] == store.removed
    racing.join()
    assert "were pruned" in refused[0] and store.registry.aliases == {"champion": 1}


def test_what_another_home_promoted_meanwhile_stays(store: Store) -> None:
    champion_aliases.promote(1)
    store.on_mark = lambda: store.registry.aliases.update(champion=3)
    found = checkpoint_retention.prune_checkpoints(0)
    assert found.versions == [2, 4, 5] == store.removed
    assert "pruned" not in store.registry.versions["3"]["tags"]
    assert [each.version for each in found.kept] == [3]


def test_a_dry_run_writes_nothing(store: Store) -> None:
    before = store.registry.writes
    assert checkpoint_retention.prune_checkpoints(2, dry_run=True).versions == [1, 2, 3]
    assert (store.registry.writes, store.removed) == (before, [])
