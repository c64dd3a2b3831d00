"""What plugins use is importable in one place, and cheaply."""

import subprocess
import sys

HEAVY = ("torch", "transformers", "mlflow", "prefect", "pandas", "great_expectations", "dvc")


def test_the_interface_holds_what_it_names_and_imports_nothing_heavy():
    program = (
        "import sys, ratchet.api as api\n"
        "assert all(hasattr(api, name) for name in api.__all__)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
