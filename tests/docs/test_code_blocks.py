"""Every code block of README and docs/ runs, or says why it does not; every command line in them is one that exists."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from documented_code import DOCS, ROOT, SHELLS, TUTORIALS, CodeBlock, code_blocks, pages, ratchet_commands

from ratchet.cli import app


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands() -> list[tuple[str, list[str]]]:
    return [
        (f"{name_of(page)}:{block.line}", words)
        for page in pages()
        for block in code_blocks(page)
        for words in ratchet_commands(block)
    ]


def run(code: str, language: str, folder: Path) -> None:
    """Run a block in a folder, with this interpreter's `ratchet` and `python` first on the path."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RATCHET_HOME": str(folder / ".ratchet"),
        "COLUMNS": "120",
    }
    command = ["bash", "-e", "-c", code] if language in SHELLS else [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def runnable(page: Path, *languages: str) -> list[CodeBlock]:
    return [block for block in code_blocks(page) if block.language in languages and block.why_fragment is None]


@pytest.fixture(scope="module")
def root_command():
    return typer.main.get_command(app)


@pytest.mark.parametrize(
    ("where", "words"), commands(), ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_every_documented_command_has_known_options_and_all_it_needs(root_command, where, words):
    command, context = root_command, root_command.context_class(root_command, info_name="ratchet")
    words = list(words)
    while subcommands := getattr(command, "commands", None):
        assert words, f"{where}: a group alone is no command"
        assert words[0] in subcommands, f"{where}: there is no command '{words[0]}'"
        command = subcommands[words.pop(0)]
        context = command.context_class(command, info_name=command.name, parent=context, **command.context_settings)
    options, rest, _ = command.make_parser(context).parse_args(words)
    assert command.context_settings.get("allow_extra_args") or not rest, f"{where}: too many arguments: {rest}"
    missing = [each.name for each in command.params if each.required and options.get(each.name) in (None, ())]
    assert not missing, f"{where}: {missing} is missing"


def test_a_wrong_option_is_seen(root_command):
    with pytest.raises(Exception, match="--no-such"):
        test_every_documented_command_has_known_options_and_all_it_needs(
            root_command, "here", ["collect", "x", "--no-such"]
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in pages() if page.parent != TUTORIALS and runnable(page, "python")],
    ids=name_of,
)
def test_the_python_of_a_page_runs_from_top_to_bottom_in_an_empty_folder(page, tmp_path):
    run("\n".join(block.code for block in runnable(page, "python")), "python", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=name_of)
def test_a_tutorial_runs_from_an_empty_folder(page, tmp_path):
    for block in runnable(page, "python", *SHELLS):
        run(block.code, block.language, tmp_path)


def test_every_tutorial_is_read_by_the_test_above():
    assert all(runnable(page, "python", *SHELLS) for page in TUTORIALS.glob("*.md"))


def test_the_scale_of_the_gpu_tutorial_loads_as_changes_of_the_bundled_one():
    import yaml

    from ratchet.components.nights.scale_config import SCALES_FOLDER, Scale
    from ratchet.components.training.config.overrides import merge_values

    (changes,) = [block.code for block in code_blocks(TUTORIALS / "one-gpu.md") if block.language == "yaml"]
    scale = Scale.load(merge_values(yaml.safe_load((SCALES_FOLDER / "gpu.yaml").read_text()), yaml.safe_load(changes)))
    assert scale.cold_start.model.base.startswith("meta-llama/") and scale.cold_start.model.lora is not None
    scale.check()


def test_a_fragment_says_why(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- fragment: needs a server -->\n```bash\nratchet ui\n```\n\n```python\n1\n```\n")
    assert [block.why_fragment for block in code_blocks(page)] == ["needs a server", None]
    assert DOCS.is_dir()
