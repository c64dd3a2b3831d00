"""The keys of published methods are keys of a training job."""

import re
from pathlib import Path

import pytest
import yaml

from ratchet.components.training.config.method_sections import DpoOptions, GrpoOptions

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text().partition("## Keys of published methods")[2]
SECTIONS = {"`grpo:`": GrpoOptions, "`dpo:`": DpoOptions}
ROWS = [
    (name, section, keys)
    for section, part in ((name, PAGE.partition(f"| {name}")[2].partition("\n\n")[0]) for name in SECTIONS)
    for name, keys in re.findall(r"^\| (.+?) \| `(\{.+?\})` \|", part, re.MULTILINE)
]


def test_every_row_of_both_tables_is_read():
    assert len(ROWS) == 12 == PAGE.count("`{")


@pytest.mark.parametrize(("name", "section", "keys"), ROWS)
def test_the_keys_of_a_method_are_those_of_a_job(name, section, keys):
    assert SECTIONS[section].model_validate(yaml.safe_load(keys))
