"""Domain profiles: which tools a domain knows, by which names, and what becomes of a file that is wrong."""

import json

import pytest

from components.protocol import Category, ConfigurationError, load_domain, read_domain
from components.protocol.domain import PROFILES


def test_the_coding_profile_knows_its_tools():
    profile = load_domain("coding")
    assert set(profile.tools) == {
        "read_file", "edit_file", "bash", "grep", "git", "ipython", "submit", "finish", "think"
    }  # fmt: skip
    assert profile.tools["read_file"].category is Category.READ
    assert profile.tools["edit_file"].stateful_key == "path"


def test_a_tool_is_found_by_its_name_and_by_its_alias():
    profile = load_domain("coding")
    assert profile.tool("bash") == profile.tool("execute_bash") == ("bash", profile.tools["bash"])
    assert profile.tool("no_such_tool") is None


@pytest.mark.parametrize("name", ["astrology", "", ".", "../profiles/coding", "../coding", "coding/../coding"])
def test_an_unknown_domain_is_generic_and_no_path_leads_out(name):
    assert load_domain(name).name == "generic"


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.json")), ids=lambda path: path.stem)
def test_a_bundled_profile_is_whole(path):
    profile = read_domain(path)
    assert profile.name == path.stem
    names = [*profile.tools, *(alias for tool in profile.tools.values() for alias in tool.aliases)]
    assert len(names) == len(set(names)), "an alias stands for two tools"
    assert all(weight >= 0 for weight in profile.rubric.values()) and sum(profile.rubric.values()) > 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"tools": {"look": {"category": "stare"}}}, "stare"),
        ({"rubric": {"validity": "much"}}, "rubric"),
    ],
)
def test_a_wrong_profile_is_refused_by_file_and_field(tmp_path, change, named):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**json.loads((PROFILES / "generic.json").read_text()), **change}))
    with pytest.raises(ConfigurationError) as caught:
        read_domain(path)
    assert "mine.json" in str(caught.value) and named in str(caught.value) and "\n" not in str(caught.value)


def test_an_absent_profile_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent\.json"):
        read_domain(tmp_path / "absent.json")
