"""MLflow in the morning after three nights, in real Chromium: start page, leaderboard, comparison, nights, lost tasks, a
flipped task's trace, registry.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "docs/screenshot.py"
SEASON = {"2026-11-19-a": (12, 13), "2026-11-20-b": (12, 20), "2026-11-21-c": (20, 19)}
"""By night: how many of 24 tasks champion and challenger solve."""
MOST = 150_000
"""Bytes of a picture."""


@pytest.fixture(scope="module")
def screenshot():
    """`docs/screenshot.py`, which is no package."""
    if shutil.which("chromium") is None:
        pytest.skip("chromium is absent")
    spec = importlib.util.spec_from_file_location("screenshot", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def season(tmp_path_factory, screenshot):
    """A home with three nights: undecided, promoted, kept."""
    from logged_nights import log_night, played, registered

    from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule

    margins = {"invalid_call_margin": 0.3, "steps_margin": 1.0, "tokens_margin": 1.0, "unsafe_margin": 0.3}
    rule = PromotionRule(n_resamples=500, min_tasks=10, **margins)
    place = tmp_path_factory.mktemp("season")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(place / "home"))
        for name in ("MLFLOW_TRACKING_URI", "RATCHET_ARTIFACTS"):
            patch.delenv(name, raising=False)
        patch.setattr(
            "ratchet.flows.mlflow_log.log_figures", lambda *_: None
        )  # no page here shows them, and drawing takes seconds
        registered("w0", "2026-11-18-z", champion="the first agent")
        champion, verdicts = "w0", []
        for number, (night, (held, won)) in enumerate(SEASON.items(), start=1):
            registered(f"w{number}", night)
            folders = {"champion": played(place / night / "champion", champion, held)}
            folders["challenger"] = played(place / night / "challenger", f"w{number}", won)
            verdicts.append(log_night(night, folders, seed=number, rule=rule).verdict)
            champion = f"w{number}" if verdicts[-1] == "promote" else champion
        assert verdicts == ["undecided", "promote", "keep"]
        yield


def test_the_pages_of_a_night_show_what_they_are_there_for(season, screenshot, tmp_path):
    pages = screenshot.pages("repair")
    assert [page.name for page in pages] == [
        "home", "leaderboard", "compare", "nights", "lost", "trace", "registry",
    ]  # fmt: skip
    with screenshot.mlflow() as server, screenshot.chromium() as tab:
        saved = screenshot.take(tab, server, pages, tmp_path)
        assert tab.get_by_text("@ anchor").first.is_visible() and tab.get_by_text("@ previous").first.is_visible()
    assert [path.name for path in saved] == [f"mlflow-{page.name}.png" for page in pages]
    assert all(path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size < MOST for path in saved)


def test_the_pages_of_an_earlier_night_are_its_own(season, screenshot):
    newest, earlier = screenshot.pages("repair"), screenshot.pages("repair", "2026-11-20-b")
    assert newest[2].path != earlier[2].path and newest[5].path != earlier[5].path and newest[6] == earlier[6]
    for experiment, night, said in (("repair", "2026-11-01-x", "no champion"), ("other", None, "no experiment")):
        with pytest.raises(SystemExit, match=said):
            screenshot.pages(experiment, night)
