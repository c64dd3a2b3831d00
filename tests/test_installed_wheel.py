"""A wheel holds one package, `ratchet`, which stands beside a user's own modules of any name."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from small_project import make_night_small

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with modules named as ours in the clone, and an environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("tasks.py", "flows.py", "components/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("MINE = True\n")
    uv = [sys.executable, "-m", "uv"]
    # By way of a source distribution, which leaves no stale `build/` in the clone; setuptools stands in its environment.
    build = [*uv, "build", "--no-build-isolation", "--quiet", "--out-dir", str(folder / "dist"), str(ROOT)]
    subprocess.run(build, check=True)
    venv.create(folder / "env", symlinks=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    install = [*uv, "pip", "install", "--quiet", "--no-deps", "--python", str(folder / "env/bin/python"), str(wheel)]
    subprocess.run(install, check=True)
    site = next((folder / "env/lib").glob("python*/site-packages"))
    # Dependencies come from the clone's environment, behind the wheel and without the clone itself.
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(ours) + "\n")
    return folder


def run(project: Path, *arguments: str, cwd: Path | None = None) -> str:
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "RATCHET_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [str(project / "env/bin/python"), *arguments]
    done = subprocess.run(command, cwd=cwd or project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_package_is_the_wheels_and_the_modules_beside_it_are_the_users(project: Path) -> None:
    program = (
        "import components, flows, tasks, ratchet, ratchet.components.core, ratchet.flows, ratchet.tasks\n"
        "assert components.MINE and flows.MINE and tasks.MINE\n"
        "print(ratchet.__file__, ratchet.make.__module__)\n"
        "from ratchet.components.core.errors import install_command\n"
        "print(install_command('mcp'))"
    )
    file, module, *command = run(project, "-c", program).split()
    assert file.startswith(str(project)) and module.startswith("ratchet.components.core")
    (wheel,) = (project / "dist").glob("*.whl")
    assert command == ["pip", "install", f"'./{wheel.name}[mcp]'"]


@pytest.mark.slow
def test_the_command_and_the_modules_run(project: Path) -> None:
    shown = run(project, str(project / "env/bin/ratchet"), "--help")
    assert "Usage: ratchet" in shown and "night" in shown
    assert "--pipeline" in run(project, "-m", "ratchet.components.datasets.stage_code", "--help")


@pytest.mark.slow
def test_scales_and_recipes_are_part_of_the_wheel(project: Path) -> None:
    program = "from ratchet.components.nights.scale_config import load_scale; print(load_scale('smoke').name)"
    assert run(project, "-c", program).strip() == "smoke"


@pytest.mark.slow
def test_the_page_of_the_inspector_is_part_of_the_wheel_and_its_source_is_not(project: Path) -> None:
    (installed,) = (project / "env/lib").glob("python*/site-packages/ratchet/components/inspector")
    assert not (installed / "web").exists()
    built = ROOT / "components/inspector/assets"
    names = {path.relative_to(built) for path in built.rglob("*")}
    assert {path.relative_to(installed / "assets") for path in (installed / "assets").rglob("*")} == names


@pytest.fixture(scope="module")
def own(project: Path) -> Path:
    """A project that `ratchet init` of the wheel has made, in an empty folder."""
    (project / "empty").mkdir()
    run(project, "-m", "ratchet.cli", "init", "my", cwd=project / "empty")
    return project / "empty" / "my"


@pytest.mark.slow
def test_a_project_made_by_the_wheel_is_whole(project: Path, own: Path) -> None:
    validated = run(project, "-m", "ratchet.cli", "tasks", "validate", "greenhouse", "--json", cwd=own)
    assert json.loads(validated)["problems"] == [] and json.loads(validated)["tasks"] == 2
    assert '"rank"' in run(project, "-m", "dvc", "dag", "--dot", cwd=own)
    assert "passed" in run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=own)
    run(project, "-m", "ratchet.components.datasets.stage_code", "--out", "lists", cwd=own)
    listed = (own / "lists/score.txt").read_text().splitlines()
    assert any(line.endswith("ratchet/components/rewards/scoring_stage.py") for line in listed)


@pytest.mark.long
def test_a_night_runs_in_a_project_made_by_the_wheel(project: Path, own: Path) -> None:
    make_night_small(own)
    decision = json.loads(run(project, "-m", "ratchet.cli", "night", "--json", cwd=own).splitlines()[-1])
    assert decision["taskset"]["name"] == "starter"
    tags = subprocess.run(["git", "tag"], cwd=own, capture_output=True, text=True, check=True).stdout
    assert tags.startswith("night/")
