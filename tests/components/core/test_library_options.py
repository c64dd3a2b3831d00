"""Options passed on to a library: its names are read from its source, without an import."""

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.core.library_options import check_options, declared_fields

SOURCE = """
raise SystemExit("never imported")

class Arguments:
    size: int = 3
    share: float
    constant = 7

    def method(self):
        local: int = 1

class More(Arguments):
    other: str = ""
"""


def test_the_annotated_fields_of_a_class_are_its_arguments(tmp_path):
    file = tmp_path / "arguments.py"
    file.write_text(SOURCE)
    assert declared_fields(file, "Arguments") == {"size", "share"}
    assert declared_fields(file, "More") == {"other"}
    assert declared_fields(file, "Absent") == declared_fields(tmp_path / "absent.py", "Arguments") == set()
    file.write_text("class Arguments:\n  size: int = (")
    assert declared_fields(file, "Arguments") == set()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("siez", r"^tool\.siez: the tool has no such argument; did you mean 'size'\?$"),
        ("quite_other", r"^tool\.quite_other: the tool has no such argument; see its documentation$"),
        ("share", r"^tool\.share: set the share elsewhere; remove it here$"),
    ],
)
def test_a_wrong_name_and_a_decided_one_are_refused_in_one_line(name, message):
    with pytest.raises(ConfigurationError, match=message):
        check_options("tool", "the tool", {name: 1}, {"share": "set the share elsewhere"}, {"size", "share"})


def test_without_known_names_only_what_is_decided_is_refused():
    check_options("tool", "the tool", {"anything": 1}, {"share": ""}, set())
