"""The reference is complete: every command, every public name, every key with what it does."""

import re
import sys

import pytest
import typer
from documented_code import DOCS, ROOT

import ratchet
from ratchet.cli import app
from ratchet.components.models.policy_config import OpenAIConfig
from ratchet.components.nights.recipe_config import Stage
from ratchet.components.nights.scale_config import Scale
from ratchet.components.training.config.job_config import JOBS

sys.path.insert(0, str(DOCS))
import reference_pages

PAGES = reference_pages.reference_pages()


def sections(model, seen):
    """Yield the class and all sections within it, each once."""
    if model not in seen:
        seen.add(model)
        yield model
        for key in reference_pages.keys_of(model):
            for inner in key.sections:
                yield from sections(inner, seen)


ALL_SECTIONS = [
    model for seen in [set()] for top in (*JOBS.values(), Stage, Scale, OpenAIConfig) for model in sections(top, seen)
]


@pytest.mark.parametrize("model", ALL_SECTIONS, ids=lambda model: model.__name__)
def test_every_key_says_what_it_does(model):
    silent = [key.name for key in reference_pages.keys_of(model) if not key.effect and not key.sections]
    assert not silent, f"say in the docstring of {model.__name__} what these do: {silent}"


def test_every_key_of_params_yaml_says_what_it_does():
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", PAGES["reference/params.md"], re.MULTILINE)
    assert len(rows) > 80
    assert [name for name, effect in rows if not effect.strip()] == []


def test_every_section_of_params_yaml_is_there():
    import yaml

    assert list(reference_pages.params_models()) == list(yaml.safe_load((ROOT / "params.yaml").read_text()))


def test_every_section_that_a_table_links_to_is_described_once():
    text = "\n".join(PAGES.values())
    linked = set(re.findall(r"\[section\]\(\w+\.md#(\w+)\)", text))
    described = re.findall(r"\{#(\w+)\}", text)
    assert linked <= set(described) and len(described) == len(set(described))


def test_bounds_defaults_and_choices_are_those_of_the_class():
    keys = {key.name: key for key in reference_pages.keys_of(JOBS["dpo"].model_fields["dpo"].annotation)}
    assert (keys["beta"].type, keys["beta"].default) == ("number > 0", "0.1")
    assert keys["loss"].type == "`sigmoid` or `ipo` or `robust`"
    assert "KL penalty" in keys["beta"].effect


def commands(command, path):
    """Yield the path and the options of a command and of all its subcommands."""
    yield path, [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


def test_every_command_and_option_is_there():
    described = list(commands(typer.main.get_command(app), "ratchet"))[1:]
    text = PAGES["reference/commands.md"]
    assert all(f"# `{path}`\n" in text for path, _ in described) and len(described) > 50
    assert text.count("\n* `-") >= sum(len(options) for _, options in described)


def test_every_public_name_is_there():
    names = re.findall(r"^::: ratchet\.(\w+)$", PAGES["reference/python.md"], re.MULTILINE)
    assert sorted(names) == sorted(ratchet.__all__)
