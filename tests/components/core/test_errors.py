"""How a stage of the data build begins and ends: a failure is one line, for which DVC's output is searched.

A name that there is not: the nearest, or what else there is.
"""

import subprocess
import sys

import pytest

from ratchet.components.core import DataError
from ratchet.components.core.errors import install_command, run_and_report, run_stage, suggest_name


def raising(error: Exception):
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("a.parquet is absent"), 3, "error: a.parquet is absent\n"),
        (OSError(28, "No space left on device", "a.parquet"), 4, "error: a.parquet: No space left on device\n"),
        (
            ModuleNotFoundError("No module named 'rensa'", name="rensa"),
            2,
            f"error: the package 'rensa' is not installed; install it: {install_command('night')}\n",
        ),
    ],
)
def test_what_is_expected_is_one_line(error, code, said, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        run_stage(raising(error))
    assert caught.value.code == code == run_and_report(raising(error))
    assert capsys.readouterr().err == said * 2


def test_a_module_of_ours_that_is_missing_is_a_fault_with_its_traceback() -> None:
    with pytest.raises(ModuleNotFoundError):
        run_stage(raising(ModuleNotFoundError("No module named 'ratchet.nope'", name="ratchet.nope")))


def test_what_is_done_ends_well_and_says_no_more() -> None:
    assert run_and_report(lambda: None) == 0
    run_stage(lambda: None)


def test_arrow_makes_and_gives_back_arrays_without_pandas() -> None:
    code = "; ".join(
        [
            "import sys",
            "from ratchet.components.core.errors import block_pandas",
            "block_pandas()",
            "import pyarrow as pa",
            "print(pa.array([1, None]).to_pylist(), pa.array([0.5]).to_numpy(zero_copy_only=False), 'pandas' in sys.modules)",
        ]
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[1, None] [0.5] False\n"


@pytest.mark.parametrize(
    ("name", "known", "otherwise", "said"),
    [
        ("repiar", ["orders", "repair"], None, "did you mean 'repair'?"),
        ("zzz", ["orders", "repair"], None, "known: orders, repair"),
        ("zzz", ["orders"], "see the list", "see the list"),
        ("orde", iter(["orders"]), "see the list", "did you mean 'orders'?"),
        ("", [], None, "known: none"),
    ],
)
def test_what_is_near_is_named_and_else_what_there_is(name, known, otherwise, said) -> None:
    assert suggest_name(name, known, otherwise) == said


def test_how_near_is_the_callers_choice() -> None:
    assert suggest_name("seeed", ["stages"], cutoff=0.9) == "known: stages"
    assert suggest_name("stage", ["stages"], cutoff=0.9) == "did you mean 'stages'?"
