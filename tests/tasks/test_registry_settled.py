"""Who is champion is asked of a registry in which no move is half."""

from components.tracking import models, moves
from tasks import registry


def test_a_night_completes_what_an_earlier_move_left_before_it_asks_who_is_champion(monkeypatch):
    calls = []
    monkeypatch.setattr(moves, "settle", lambda: calls.append("settle"))
    monkeypatch.setattr(models, "champion", lambda: calls.append("champion"))
    assert registry.find_champion.fn() is None and calls == ["settle", "champion"]
