"""`ratchet report`: any night, in any form, and one clear line where there is none."""

import webbrowser

import pytest

from ratchet.components.nights.night_state import begin_night


@pytest.fixture(autouse=True)
def clone(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    return tmp_path


def test_both_forms_are_written_beside_the_latest_nights_state(run):
    begin_night("smoke", 0, "monday")
    night = begin_night("full", 1, "tuesday")
    code, out, _ = run("report")
    assert code == 0 and out.strip() == str(night.folder / "report.html")
    assert (night.folder / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert (night.folder / "report.md").read_text().startswith("# Night tuesday\n")


def test_a_night_is_named_and_its_markdown_goes_to_stdout(run):
    night = begin_night("smoke", 0, "monday")
    begin_night("full", 1, "tuesday")
    code, out, _ = run("report", "monday", "--markdown")
    assert code == 0 and out.startswith("# Night monday\n") and not (night.folder / "report.md").exists()


@pytest.mark.parametrize(("name", "begin_with"), [("out.html", "<!doctype html>"), ("new/out.md", "# Night monday")])
def test_a_file_gets_the_form_of_its_ending(run, clone, name, begin_with):
    begin_night("smoke", 0, "monday")
    code, out, _ = run("report", "-o", clone / name)
    assert code == 0 and out.strip() == str(clone / name) and (clone / name).read_text().startswith(begin_with)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report",), "no nights yet: `ratchet night` starts one"),
        (("report", "nosuch"), "there is no night nosuch here; the latest: none"),
        (("report", "../.."), "cannot name a night"),
    ],
)
def test_where_there_is_no_night_one_line_says_so(run, words, said):
    code, out, err = run(*words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "out.pdf"), "name a file that ends in .html or .md"),
        (("-o", "dvc.yaml/out.md"), "dvc.yaml"),
        (("--markdown", "--open"), "--markdown prints on stdout"),
        (("--markdown", "-o", "out.md"), "--markdown prints on stdout"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(run, words, said):
    begin_night("smoke", 0, "monday")
    code, out, err = run("report", *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1


def test_a_browser_is_opened_and_its_absence_is_said(run, monkeypatch):
    night, opened = begin_night("smoke", 0, "monday"), []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or False)
    code, _, err = run("report", "--open")
    assert code == 0 and opened == [(night.folder / "report.html").as_uri()] and "no browser could be opened" in err


def test_outside_of_a_clone_one_line_says_so(run, clone):
    (clone / "dvc.yaml").unlink()
    code, _, err = run("report")
    assert code == 2 and "is not the root of a clone" in err
