"""Writes the tables of docs/sandboxing.md from the attacks themselves: `python tests/attacks/table.py`."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "sandboxing.md"
BEGIN, END = "<!-- attacks: begin (python tests/attacks/table.py) -->", "<!-- attacks: end -->"
HEAD = "docker | local with namespaces | local without"
THEMES = (
    "escapes",
    "resources",
    "network",
    "planting",
    "tampering",
    "paths",
    "injection",
    "floods",
    "processes",
    "leaks",
    "host",
)


def attacks():
    """Every attack by theme: its name and what is promised of it in each place, in the order of the files."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]
    found = {}
    for theme in THEMES:
        spec = importlib.util.spec_from_file_location(f"attacks_{theme}", HERE / f"test_{theme}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[theme] = {
            name: value.promises
            for name, value in vars(module).items()
            if hasattr(value, "promises") and name.startswith("test_")
        }
    return found


def tables(found):
    """The two tables: themes by place, then every attack by theme."""
    lines = ["| theme | " + HEAD + " |", "|---|---|---|---|"]
    for theme, tried in found.items():
        counts = [Counter(promises[place] for promises in tried.values()) for place in ("docker", "local", "bare")]
        lines.append(f"| [{theme}](#{theme}) ({len(tried)}) | " + " | ".join(map(_counted, counts)) + " |")
    total = sum(map(len, found.values()))
    lines += [
        "",
        f"{total} attacks. *Not promised*: not tried there, because it would harm the machine or depends on it.",
        "",
    ]
    for theme, tried in found.items():
        lines += [
            f"### {theme}",
            "",
            f"| {HERE.parent.name}/{HERE.name}/test_{theme}.py | {HEAD} |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {_said(name)} | " + " | ".join(map(_shown, promises.values())) + " |"
            for name, promises in tried.items()
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _counted(count):
    return ", ".join(f"{count[word]} {word}" for word in ("stopped", "not stopped", "not promised") if count[word])


def _said(name):
    return name.removeprefix("test_").replace("_", " ")


def _shown(word):
    return f"**{word}**" if word == "not stopped" else word


def written(text, found):
    """The document with its tables as the attacks are."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables(found)}{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), attacks()), encoding="utf-8")
