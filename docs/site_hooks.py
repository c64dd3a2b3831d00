"""Hooks of mkdocs (`mkdocs.yml`): generated reference pages, notebooks as pages, and links to files outside `docs/`.

A page here is read on the web and in the repository alike. A link to a file outside `docs/`, such as
`../data/tasksets/repair/README.md`, copies that file to `repository/` in the site. GitHub lets a list or a table follow a
paragraph without a blank line, Python-Markdown does not: the hook inserts it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference_pages import reference_pages

ROOT = Path(__file__).parents[1]
COPIES = "repository"
"""Folder in the site of files from outside `docs/`."""
LINK = re.compile(r"(\]\(|\bsrc=\")([^)\s\":#]+)(?=[#)\"\s])")
FENCED = re.compile(r"(^ *(?:```|~~~).*\n(?:.*\n)*? *(?:```|~~~).*$)", re.MULTILINE)
BEFORE_LIST = re.compile(r"(?:\A\n|(?:\A|(?<=\n\n))(?:(?! *(?:[-*] |\d+\. )) *\S.*\n)+)(?=[-*] |\d+\. )")
BEFORE_TABLE = re.compile(r"^(?![|#]) *\S.*\n(?=\|)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, notebooks, and every linked file from outside `docs/`."""
    for src_uri, content in reference_pages().items():
        files.append(File.generated(config, src_uri, content=content))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        uri = notebook.src_uri.replace(".ipynb", ".md")
        files.append(File.generated(config, uri, content=notebook_markdown(notebook.content_string)))
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for path in linked_files(page.content_string, repository_path(page.src_uri)):
            uri = site_path(path)
            if files.get_file_from_path(uri) is None and not path.startswith("docs/"):
                copy = File.generated(config, uri, abs_src_path=str(ROOT / path))
                files.append(copy)
                if copy.is_documentation_page():
                    waiting.append(copy)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite links to files outside `docs/`, and separate lists and tables from paragraphs."""
    source = repository_path(page.file.src_uri)
    here = dirname(page.file.src_uri)

    def relink(match: re.Match[str]) -> str:
        path = _repository_file(match[2], source)
        return match[0] if path is None else match[1] + relpath(site_path(path), here or ".")

    parts = FENCED.split(markdown)  # every second one is a fenced block
    parts[::2] = (LINK.sub(relink, separate_blocks(part)) for part in parts[::2])
    return "".join(parts)


def repository_path(src_uri: str) -> str:
    """Return the path in the repository of a file of the site."""
    return src_uri.removeprefix(f"{COPIES}/") if src_uri.startswith(f"{COPIES}/") else f"docs/{src_uri}"


def site_path(path: str) -> str:
    """Return the path in the site of a file of the repository. A notebook is a page."""
    return path.removeprefix("docs/").replace(".ipynb", ".md") if path.startswith("docs/") else f"{COPIES}/{path}"


def linked_files(markdown: str, source: str) -> Iterator[str]:
    """Yield the repository path of every existing file that a document at `source` links to."""
    for match in LINK.finditer(markdown):
        if (path := _repository_file(match[2], source)) is not None:
            yield path


def _repository_file(link: str, source: str) -> str | None:
    path = normpath(join(dirname(source), link))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def separate_blocks(markdown: str) -> str:
    """Insert a blank line before each list or table that follows a paragraph directly."""
    return BEFORE_TABLE.sub(r"\g<0>\n", BEFORE_LIST.sub(r"\g<0>\n", markdown))


def notebook_markdown(text: str) -> str:
    """Return a notebook as Markdown: its text, its code, and the plain text of what the code printed or returned."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            shown = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
            parts.append(f"```\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
