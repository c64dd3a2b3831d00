"""Who holds the place: every move is whole. A registry of fakes counts its writes and dies before any of them."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.protocol import ConfigurationError, DataError, InfrastructureError
from components.tracking import aliases, models, moves, promotion, spool
from components.tracking.models import ModelRef


class Killed(BaseException):
    """What kill -9 looks like to a process that is asked nothing."""


class NotThere(Exception):
    """What MLflow says of a version that it does not have."""

    error_code = "RESOURCE_DOES_NOT_EXIST"


class Registry:
    """What MLflow keeps of `agent`: versions with tags and descriptions, aliases, tags. `die_at`: before which write it dies."""

    def __init__(self, versions=5):
        self.aliases, self.tags, self.writes, self.die_at, self.down = {}, {}, 0, None, False
        self.versions = {str(number): {"tags": {}, "description": ""} for number in range(1, versions + 1)}

    def written(self):
        if self.down:
            raise OSError("connection refused")
        if self.writes == self.die_at:
            self.die_at = None
            raise Killed
        self.writes += 1

    def get_registered_model(self, name):
        return SimpleNamespace(aliases={alias: str(version) for alias, version in self.aliases.items()}, tags=self.tags)

    def set_registered_model_tag(self, name, key, value):
        self.written()
        self.tags[key] = value

    def delete_registered_model_tag(self, name, key):
        self.written()
        del self.tags[key]

    def set_registered_model_alias(self, name, alias, version):
        self.written()
        self.version(version)
        self.aliases[alias] = int(version)

    def set_model_version_tag(self, name, version, key, value):
        self.written()
        self.version(version)["tags"][key] = value

    def update_model_version(self, name, version, description=None):
        self.written()
        self.version(version)["description"] = description

    def version(self, version):
        try:
            return self.versions[str(version)]
        except KeyError:
            raise NotThere(f"no version {version}") from None

    def get(self, version, name="agent"):
        if str(version) not in self.versions:
            raise ConfigurationError(f"model '{name}' has no version {version}")
        tags = self.versions[str(version)]["tags"]
        return ModelRef(name, int(version), f"p{version}", f"m-{version}", None, "", f"h{version}", dict(tags))

    def state(self):
        return dict(self.aliases), promotion.champions(), moves.JOURNAL in self.tags


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    return installed(Registry(), monkeypatch)


def installed(made, monkeypatch):
    for module in (aliases, models, moves):
        monkeypatch.setattr(module, "client", lambda: made)
    monkeypatch.setattr(promotion, "get", made.get)
    monkeypatch.setattr(spool, "WAITS", ())
    monkeypatch.setattr(spool, "_troubles", lambda: (NotThere, OSError))
    return made


def champion(registry):
    return registry.aliases.get("champion")


def test_a_promotion_says_who_held_the_place_before_and_why(registry):
    promotion.promote(1, why="the first", anchor=True)
    promotion.promote(3, why="+12 points")
    assert registry.aliases == {"champion": 3, "previous": 1, "anchor": 1}
    assert registry.versions["3"]["description"] == "+12 points"
    assert registry.versions["3"]["tags"]["promoted_why"] == "+12 points"
    assert promotion.champions() == (1, 3) and moves.JOURNAL not in registry.tags


def test_promoting_the_champion_again_writes_nothing(registry):
    promotion.promote(2)
    before = registry.writes
    promotion.promote(2, why="again")
    assert registry.writes == before


def test_a_second_rollback_goes_back_further_and_the_lost_version_says_why(registry):
    for version in (1, 2, 4):
        promotion.promote(version)
    promotion.roll_back(why="it loops")
    assert registry.aliases == {"champion": 2, "previous": 4} and promotion.champions() == (1, 2)
    assert registry.versions["4"]["tags"]["rolled_back_why"] == "it loops"
    promotion.roll_back(why="it too")
    assert registry.aliases == {"champion": 1, "previous": 2} and promotion.champions() == (1,)
    with pytest.raises(ConfigurationError, match=r"cannot go 1 champions back: the champions were 1 \(the last"):
        promotion.roll_back(why="further")


def test_one_may_go_back_to_any_earlier_champion_and_to_no_other(registry):
    for version in (1, 2, 4):
        promotion.promote(version)
    with pytest.raises(ConfigurationError, match=r"version 3 was never champion \(those were 1, 2, 4\)"):
        promotion.roll_back(to=3, why="no")
    assert promotion.roll_back(to=1, why="sound").version == 1
    promotion.promote(5)
    assert promotion.champions() == (1, 5) and registry.aliases["previous"] == 1
    assert promotion.roll_back(to=5, why="already").version == 5


def test_an_anchor_that_is_left_behind_comes_along(registry):
    for version in (1, 2, 4):
        promotion.promote(version)
    promotion.move_anchor(4)
    promotion.roll_back(to=1, why="4 was not sound")
    assert registry.aliases["anchor"] == 1


def test_what_was_pruned_or_never_was_is_refused_before_anything_moves(registry):
    promotion.promote(1)
    registry.versions["2"]["tags"]["pruned"] = "true"
    for version, said in ((2, "were pruned"), (9, "has no version 9")):
        with pytest.raises(ConfigurationError, match=said):
            promotion.promote(version)
    with pytest.raises(ConfigurationError, match="were pruned"):
        promotion.move_anchor(2)
    assert registry.state() == ({"champion": 1}, (1,), False)


def test_nothing_can_be_rolled_back_before_the_first_champion(registry):
    with pytest.raises(ConfigurationError, match="has no champion yet"):
        promotion.roll_back(why="no")


def test_a_registry_of_an_older_version_knows_its_champions_from_the_aliases(registry):
    registry.aliases = {"champion": 4, "previous": 2}
    assert promotion.champions() == (2, 4)
    assert promotion.roll_back(why="as before").version == 2


ACTS = {
    "promote": lambda: promotion.promote(4, why="better"),
    "roll back": lambda: promotion.roll_back(why="worse"),
    "move anchor": lambda: promotion.move_anchor(2),
}


@pytest.mark.parametrize("act", ACTS)
def test_killed_at_any_write_the_place_is_the_old_or_the_new_one_and_the_next_call_completes(
    act, tmp_path, monkeypatch
):
    def prepared():
        made = installed(Registry(), monkeypatch)
        monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
        for version in (1, 2):
            promotion.promote(version, anchor=True)
        return made, made.state(), made.writes

    made, old, begun = prepared()
    ACTS[act]()
    new, writes = made.state(), made.writes - begun
    assert writes >= 3
    for moment in range(writes):
        made, _, begun = prepared()
        made.die_at = begun + moment
        with pytest.raises(Killed):
            ACTS[act]()
        assert champion(made) in (old[0]["champion"], new[0]["champion"]), moment
        moves.settle()
        assert made.state() == (old if moment == 0 else new), moment
        assert moves.settle() is False


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["promote", "back", "anchor"]), st.integers(1, 5), st.integers(0, 9)), max_size=8
    )
)
def test_whatever_is_done_and_killed_the_line_ends_with_the_champion_and_no_move_is_half(tmp_path_factory, deeds):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(tmp_path_factory.getbasetemp() / "moves"))
        made = installed(Registry(), patch)
        for deed, version, moment in deeds:
            made.die_at = made.writes + moment
            with suppress(Killed, ConfigurationError):
                _do(deed, version)
            made.die_at = None
        moves.settle()
        found, line, half = made.state()
        assert not half and (not line or line[-1] == found["champion"])
        assert found.get("previous") != found.get("champion") or not line


def _do(deed, version):
    if deed == "promote":
        promotion.promote(version)
    elif deed == "back":
        promotion.roll_back(to=version, why="w")
    else:
        promotion.move_anchor(version)


def test_a_registry_that_does_not_answer_moves_nothing_and_says_so(registry):
    promotion.promote(1)
    registry.down = True
    with pytest.raises(InfrastructureError, match="does not answer"):
        promotion.promote(2)
    registry.down = False
    assert moves.settle() is False and champion(registry) == 1


def test_a_move_to_a_version_that_was_deleted_meanwhile_is_given_up_in_one_line(registry):
    promotion.promote(1)
    registry.die_at = registry.writes + 1
    with pytest.raises(Killed):
        promotion.promote(4)
    del registry.versions["4"]
    with pytest.raises(DataError, match="cannot be completed") as error:
        moves.settle()
    assert "\n" not in str(error.value) and champion(registry) == 1
    assert promotion.promote(2).version == 2


@pytest.mark.parametrize(
    "written", ["", "{}", "no JSON", '{"aliases": {"champion": 2}, "unheard_of": 1}', '{"aliases": 3}']
)
def test_a_journal_that_cannot_be_read_moves_nothing(registry, written):
    promotion.promote(1)
    registry.tags[moves.JOURNAL] = written
    if written:
        with pytest.raises(DataError, match="cannot be completed"):
            moves.settle()
    assert moves.settle() is False and champion(registry) == 1
