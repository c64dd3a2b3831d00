"""The site builds without a warning, has every page in its navigation, and reads in the repository as on the web."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_code import DOCS, ROOT

sys.path.insert(0, str(DOCS))
import draw_architecture


def navigation(items: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            yield from navigation(value) if isinstance(value, list) else [value]


def test_every_page_and_notebook_is_in_the_navigation_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = [name for name in navigation(yaml.safe_load(text)["nav"]) if not name.startswith("reference/")]
    there = [
        str(page.relative_to(DOCS).with_suffix(".md")) for end in ("md", "ipynb") for page in DOCS.rglob(f"*.{end}")
    ]
    assert sorted(listed) == sorted(there)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-4000:]
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_without_a_word(site):
    assert (site / "tutorials" / "first-night.html").is_file() and (site / "reference" / "python.html").is_file()


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site):
    loads = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?://[^"]+"')
    assert {
        found for page in site.rglob("*.html") for found in loads.findall(page.read_text(encoding="utf-8"))
    } == set()


@pytest.mark.slow
def test_a_linked_file_from_outside_docs_is_a_page_of_the_site(site):
    assert (
        'href="repository/data/benchmarks/steps/index.html"'
        in (site / "branching.html").read_text() + (site / "prm.html").read_text()
    )
    assert (site / "repository" / "data" / "benchmarks" / "steps" / "index.html").is_file()


@pytest.mark.slow
def test_a_list_that_follows_a_paragraph_is_a_list(site):
    assert (
        "<table>" in (site / "statistics.html").read_text() and "| of |" not in (site / "statistics.html").read_text()
    )


def test_the_picture_is_what_its_script_draws():
    assert draw_architecture.TARGET.read_text(encoding="utf-8") == draw_architecture.draw()


def test_the_glossary_has_at_most_twenty_terms():
    rows = re.findall(r"^\| (?!word|---)(.+?) \|", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert 10 < len(rows) <= 20 and len(set(rows)) == len(rows)


METHODS = re.findall(
    r"^\| (.+?) \| (in|out) \| (.+) \|$", (DOCS / "methods.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(
    ("method", "where"), [(m, w) for m, state, w in METHODS if state == "in"], ids=lambda text: text[:40]
)
def test_a_method_that_is_in_has_its_module_and_its_option_is_read_by_the_code(method, where):
    names = re.findall(r"`([\w./-]+)`", where)
    paths = [next((p for p in (ROOT / "components" / n, ROOT / n) if p.exists()), None) for n in names]
    assert names and None not in paths, where
    texts = [f.read_text() for p in paths for f in (p.rglob("*.py") if p.is_dir() else [p])]
    for option in re.findall(r"\(.*?`(\w+)`", method):
        users = subprocess.run(
            ["git", "grep", "-lw", option, "--", "components"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert any(re.search(rf"\b{option}\b", text) for text in texts) or users.stdout, option


def test_a_method_that_is_out_has_a_reason():
    out = {method: why for method, state, why in METHODS if state == "out"}
    assert len(out) >= 10 and all(len(why) > 15 for why in out.values())
