"""What every command has in common: its version, completions, units, colours, and headings of tables."""

import re
from pathlib import Path

import pytest
from rich.text import Text

from ratchet.components.core.errors import count_text
from ratchet.render import terminal

SOURCES = [
    path for folder in ("commands", "render") for path in (Path(terminal.__file__).parents[1] / folder).glob("*.py")
]


def test_the_version_is_printed_and_is_that_of_the_package(run):
    code, out, err = run("--version")
    assert code == 0 and err == "" and re.fullmatch(r"ratchet \d+\.\d+\.\d+\S*\n", out)


def test_a_shell_completes_commands(run, monkeypatch):
    monkeypatch.setenv("_RATCHET_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ratchet pl")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.6, "1 min 0 s"), (250, "4 min 10 s"), (7500, "2 h 5 min"), (None, None)],
)
def test_a_duration_has_its_unit(seconds, text):
    assert terminal.duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1381576, "1.38 MB"), (80e9, "80 GB"), (None, None)]
)
def test_a_size_has_its_unit(count, text):
    assert terminal.bytes_text(count) == text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "night", "1 night"), (2, "identity", "2 identities"), (1200, "file", "1,200 files")],
)
def test_a_count_has_its_noun_in_the_right_number(number, noun, text):
    assert count_text(number, noun) == text


def test_no_column_of_a_table_is_without_a_heading():
    headings = [
        (path.name, found[1])
        for path in SOURCES
        for found in re.finditer(r"print_table\(\s*\(([^)]*)\)", path.read_text())
    ]
    unnamed = [found for found in headings if '""' in found[1]]
    assert len(headings) > 20
    assert unnamed == []


def test_colours_are_only_for_a_terminal_and_not_where_NO_COLOR_asks_for_none(capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    terminal.print_table(("state",), [(Text("ok", "green"),)])
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stdout for a terminal
    terminal.print_table(("state",), [(Text("ok", "green"),)])
    assert "\x1b[32m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.print_table(("state",), [(Text("ok", "green"),)])
    assert "\x1b[32m" not in capsys.readouterr().out
