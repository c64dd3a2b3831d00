"""What docs/migration.md names on our side exists: Python names, keys of a job, and keys of params.yaml."""

import re

import pytest
import yaml
from documented_code import DOCS, ROOT

import ratchet
from ratchet.components.training.config.job_config import JOBS

PAGE = (DOCS / "migration.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def keys_of(model: type) -> set[str]:
    """The dotted names of all keys of a configuration, sections of sections included."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if hasattr(inner, "model_fields"):
                names |= {f"{name}.{key}" for key in keys_of(inner)}
    return names


def test_every_python_name_on_our_side_is_public():
    named = set()
    for row in rows("## Python"):
        for span in re.findall(r"`([^`]+)`", row[1]):
            if not span.startswith("ratchet ") and (match := re.match(r"([A-Za-z_]\w+)(?:\(|$)", span)):
                named.add(match[1])
    assert len(named) > 35 and named - set(ratchet.__all__) == set()


@pytest.mark.parametrize("row", rows("### Training"), ids=lambda row: row[0])
def test_every_key_of_the_trainer_has_a_key_of_a_job_or_none(row):
    known = set().union(*(keys_of(job) for job in JOBS.values()))
    spans = [span for span in re.findall(r"`([^`]+)`", row[1]) if not span.startswith("ratchet ")]
    assert spans or row[1] == "none" or "`ratchet " in row[1]
    assert set(spans) - known == set()


def test_the_keys_of_params_yaml_exist():
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    sections = "|".join(params)
    for name in re.findall(
        rf"`((?:{sections})\.\w+)(?:: \w+)?`", PAGE.partition("### Reward and pipeline settings")[2]
    ):
        section, key = name.split(".")
        assert key in params[section] or (section == "score" and key in ratchet.RewardConfig.model_fields), name
