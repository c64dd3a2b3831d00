"""What plugins use is importable in one place, and cheaply."""

import os
import subprocess
import sys

import pytest

import ratchet

HEAVY = ("torch", "transformers", "mlflow", "prefect", "pandas", "great_expectations", "dvc")
SCIENTIFIC = ("numpy", "scipy", "docker", "httpx")
"""Loaded by some commands and names, and never by help."""


def test_neither_help_nor_a_public_name_imports_a_heavy_library():
    program = (
        "import sys, ratchet\n"
        "assert not [name for name in sys.modules if name.startswith('ratchet.')]\n"
        "from ratchet import cli\n"
        "cli.run(['night', '--help'])\n"
        f"assert not [name for name in {HEAVY + SCIENTIFIC!r} if name in sys.modules]\n"
        "assert all(hasattr(ratchet, name) for name in ratchet.__all__) and len(ratchet.__all__) > 60\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_the_library_is_imported_in_less_than_a_third_of_a_second_of_cpu_time():
    program = "import time; begin = time.process_time(); import ratchet; print(time.process_time() - begin)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        ratchet.no_such_name  # noqa: B018


@pytest.mark.parametrize(("set_before", "values"), [({}, "1 true"), ({"DO_NOT_TRACK": "0"}, "0 true")])
def test_importing_it_turns_the_telemetry_of_libraries_off_unless_the_user_has_decided(set_before, values):
    names = ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY")
    environment = {name: value for name, value in os.environ.items() if name not in names} | set_before
    code = f"import os, ratchet; print(*map(os.environ.get, {names}))"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == values


@pytest.mark.slow
def test_the_libraries_obey():
    code = (
        "import ratchet\n"
        "from huggingface_hub import constants\n"
        "from mlflow.telemetry.utils import is_telemetry_disabled\n"
        "assert constants.HF_HUB_DISABLE_TELEMETRY and is_telemetry_disabled()\n"
        "from prefect._internal.analytics.enabled import is_telemetry_enabled\n"
        "assert not is_telemetry_enabled()\n"
    )
    hints = ("CI", "DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "PYTEST_CURRENT_TEST", "HF_HUB_DISABLE_TELEMETRY")
    environment = {name: value for name, value in os.environ.items() if name not in hints}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
