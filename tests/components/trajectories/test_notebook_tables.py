"""Tables for notebooks show any episode without running what it holds."""

from episodes import make_episode

from ratchet.components.trajectories.notebook_tables import SHOWN_ROWS, html_table
from ratchet.components.trajectories.trajectory_list import Trajectories


def test_texts_are_escaped_and_control_characters_shown():
    shown = html_table("<b>", [{"<i>": "<script>x</script>\x1b[2J"}], "a & b")
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "\x1b" not in shown and "a &amp; b" in shown


def test_unknown_is_a_dash_and_numbers_are_short():
    shown = html_table("t", [{"a": None, "b": 0.123456, "c": True}])
    assert ">–<" in shown and ">0.1235<" in shown and ">yes<" in shown


def test_a_long_table_says_how_many_rows_are_not_shown():
    assert "5 more rows" in html_table("t", [{"n": n} for n in range(SHOWN_ROWS + 5)])


def test_episodes_show_a_row_each_and_convert_to_a_frame():
    rollouts = Trajectories([make_episode()])
    assert repr(rollouts).startswith("Trajectories(1 episode of 1 task by") and "<table>" in rollouts._repr_html_()
    frame = rollouts.to_pandas()
    assert len(frame) == 1 and frame["episode_id"][0] == rollouts[0].episode_id
    assert frame["family"][0] == rollouts[0].task.family
    assert len(rollouts[0].to_pandas()) >= 1 and "<table>" in rollouts[0]._repr_html_()


def test_no_episodes_are_shown_too():
    assert "0 episodes" in Trajectories([])._repr_html_() and Trajectories([]).success_rate is None
