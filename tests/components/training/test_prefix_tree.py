"""A prefix tree packs its samples as TRL's, column for column."""

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ratchet.components.training.prefix_tree import PrefixTree  # noqa: E402

PARTS = st.lists(st.integers(0, 2), max_size=6)


@st.composite
def batches(draw):
    """Token ids of samples made of a few common parts, so that they fork, repeat, and are prefixes of each other."""
    parts = draw(st.lists(PARTS, min_size=1, max_size=3))
    samples = st.lists(
        st.lists(st.sampled_from(parts), max_size=4).map(lambda chosen: [*itertools.chain(*chosen)]), min_size=1
    )
    return [ids or [1] for ids in draw(samples)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(batches(), st.randoms(use_true_random=False))
def test_rows_are_those_of_trl(batch, random):
    from trl.experimental.async_grpo.packing import TreeRow

    theirs, ours = TreeRow(), PrefixTree()
    for number, ids in enumerate(batch):
        sample = {
            "input_ids": torch.tensor(ids),
            "completion_mask": torch.tensor([random.randrange(2) for _ in ids]),
            "old_log_probs": torch.tensor([random.random() for _ in ids]),
            "advantage": random.random(),
            "group_id": number // 2,
        }
        theirs.add(sample)
        ours.add(sample)
    assert (ours.load, len(ours.tokens), ours.samples) == (theirs.load, len(theirs.tokens), theirs.samples)
    expected, packed = theirs.pack(), ours.pack()
    assert packed.keys() == expected.keys()
    for name, values in expected.items():
        assert packed[name].dtype == values.dtype and torch.equal(packed[name], values), name
