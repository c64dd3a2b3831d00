"""What the documents promise holds: commands and options exist, links lead somewhere, both READMEs say the same."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer.main

from ratchet.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
GUIDES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # the changelog names what was, too
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def spans(text: str) -> list[str]:
    """Inline code and the lines of fenced blocks, without comments."""
    fenced = [line.partition(" #")[0].strip() for block in FENCE.findall(text) for line in block.splitlines()[1:-1]]
    return fenced + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def commands(text: str) -> list[list[str]]:
    """The words of each `ratchet …` command line in the text."""
    parts = [part.strip() for span in spans(text) for part in re.split(r"&&|\||;", span.replace("\\|", " "))]
    return [part.split()[1:] for part in parts if part.startswith("ratchet ")]


def subcommands(group: str) -> dict[str, Any]:
    return getattr(COMMANDS.get(group), "commands", {})


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_command_and_option_in_a_guide_exists(page: Path) -> None:
    unknown = []
    for words in commands(page.read_text(encoding="utf-8")):
        if not re.fullmatch(r"[a-z-]+", words[0]) or words[0].startswith("--"):
            continue  # COMMAND --help, and options of `ratchet` itself
        command = COMMANDS.get(words[0])
        if subcommands(words[0]) and len(words) > 1:
            command = subcommands(words[0]).get(words[1])
        if command is None:
            unknown.append(" ".join(words))
            continue
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        before_dashes = words[: words.index("--")] if "--" in words else words
        options = [
            match[0] for word in before_dashes if (match := re.match(r"--[a-z][a-z-]*|-[a-z]$", word.strip("[]")))
        ]
        unknown += [f"{words[0]}: {option}" for option in options if option not in known]
    assert unknown == []


def test_the_page_of_commands_names_every_command() -> None:
    named = set()
    for row in (ROOT / "docs/commands.md").read_text(encoding="utf-8").splitlines():
        group = ""  # a row may go on with the group's other commands: `ratchet store list`, `show`, `export`
        for words in (span.split() for span in re.findall(r"`([^`]+)`", row.split(" | ")[0])):
            first, *rest = words[1:] if words[0] == "ratchet" else words
            if first in subcommands(group):
                named.add(f"{group} {first}")
            elif first in COMMANDS:
                group = first if subcommands(first) else ""
                named.add(" ".join([first, *rest[:1]]) if group else first)
    every = set()
    for first in COMMANDS:
        every |= {f"{first} {second}" for second in subcommands(first)} or {first}
    assert every - named == set(), "add a row to docs/commands.md"


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_make_target_in_a_guide_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {
        match[1] for span in spans(page.read_text(encoding="utf-8")) if (match := re.match(r"make ([a-z-]+)", span))
    }
    assert asked - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in ("".join(found) for found in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))):
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        made_with_the_site = "reference/" in path  # whose strict build checks such links
        if re.match(r"[a-z]+:", link) or made_with_the_site:
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in slugs(target)):
            broken.append(link)
    assert broken == []


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_chinese_readme_has_the_same_figures_commands_and_links() -> None:
    english, chinese = (page.read_text(encoding="utf-8") for page in (README, CHINESE))
    uncommented = [[re.sub(r" +#.*", "", block) for block in FENCE.findall(text)] for text in (english, chinese)]
    assert uncommented[0] == uncommented[1]
    prose = [FENCE.sub("", text) for text in (english, chinese)]
    figures = [Counter(re.findall(r"[+-]?\d*\.?\d+", re.sub(r"\]\([^)]*\)", "", text))) for text in prose]
    assert figures[0] == figures[1]
    links = [Counter("".join(link) for link in LINK.findall(text)) for text in prose]
    assert links[0] - Counter([CHINESE.name]) == links[1] - Counter([README.name])
    assert set(spans(prose[0])) == set(spans(prose[1]))


def test_the_threat_model_names_tests_that_exist_and_every_file_of_attacks() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tests = set(re.findall(r"`(tests/[^`]+)`", text))
    assert [path for path in tests if not (ROOT / path).exists()] == []
    attacks = {name(path) for path in ROOT.glob("tests/attacks/test_*.py")} - {"tests/attacks/test_table.py"}
    assert attacks - tests == set()


def test_every_row_of_the_threat_model_names_a_test_or_a_limit() -> None:
    model = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Threat model")[2].partition("\n## ")[0]
    rows = [row.strip("|").split(" | ") for row in model.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 10
    assert [row[0] for row in rows if len(row) != 4 or not re.search(r"`tests/|Limit:", row[3])] == []


@pytest.mark.slow
def test_the_first_look_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = [block for block in FENCE.findall(README.read_text(encoding="utf-8")) if "ratchet doctor" in block]
    lines = [line.partition(" #")[0] for line in block.splitlines()[1:-1] if line.startswith("ratchet ")]
    script = "\n".join(["set -e", *lines]).replace("/tmp/probe", str(tmp_path / "probe"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RATCHET_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(lines) == 4 and "mean of 20" in done.stdout
