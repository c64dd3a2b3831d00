"""Whose checkpoints are kept: an alias, its lineage, the newest; nothing else."""

from components.tracking.models import ModelRef
from components.tracking.retention import decide


def ref(version: int, base: str | None = "", **tags: str) -> ModelRef:
    """Version N is of policy pN; `base` None: it does not say from what it began."""
    known = tags if base is None else {"base": base} | tags
    return ModelRef("agent", version, f"p{version}", f"m-{version}", None, f"s3://b/m-{version}", f"h{version}", known)


def kept(refs: list[ModelRef], named: dict[str, int], keep: int = 0) -> dict[int, str | None]:
    return {each.version: each.why for each in decide(refs, named, keep)}


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


def test_what_was_pruned_is_not_counted_and_still_leads_to_its_ancestors() -> None:
    refs = [ref(1), ref(2, "p1", pruned="true"), ref(3, "p2"), ref(4, "p3")]
    assert kept(refs, {"champion": 3}, keep=1) == {
        1: "@champion descends from it",
        3: "@champion",
        4: "among the newest 1",
    }


def test_a_circle_of_bases_ends() -> None:
    assert set(kept([ref(1, "p2"), ref(2, "p1")], {"champion": 2})) == {1, 2}
