"""The images of worker and trainer are built without a registry and an index: from a local base, and wheels beside ours."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "ratchet-sandbox:latest"
pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]


def run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
    return str(done.stdout).strip()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build context with Ratchet's wheel and those of the packages that it needs at least."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "image", "inspect", BASE], capture_output=True).returncode
    ):
        pytest.skip(f"no Docker engine answers that has {BASE}: infra/sandbox/build_base.sh")
    folder = tmp_path_factory.mktemp("context")
    (folder / "infra").mkdir()
    for name in ("requirements.txt", "constraints.txt", ".dockerignore"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "infra/worker", folder / "infra/worker")
    environment = os.environ | {"PYTHONPATH": ""}
    run(
        sys.executable,
        "-m",
        "uv",
        "build",
        "--no-build-isolation",
        "--quiet",
        "--out-dir",
        f"{folder}/dist",
        str(ROOT),
        env=environment,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    version = run("docker", "run", "--rm", BASE, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    wanted = [str(wheel), "--constraint", str(ROOT / "constraints.txt"), "--python-version", version]
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary",
        ":all:",
        "--dest",
        f"{folder}/dist",
    ]
    if (done := subprocess.run([*download, *wanted], capture_output=True, text=True)).returncode:
        pytest.skip(f"the packages cannot be downloaded here: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.fixture(scope="module")
def bases(context: Path) -> Iterator[dict[str, str]]:
    """Local images in the place of Python's and uv's; a compiler is only named, since the trainer's comes from Debian."""
    folder = context / "bases"
    folder.mkdir()
    shutil.copy(Path(sys.executable).with_name("uv"), folder / "uv")
    (folder / "uv.Dockerfile").write_text("FROM scratch\nCOPY uv /uv\n")
    (folder / "python.Dockerfile").write_text(f"FROM {BASE}\nUSER root\nRUN ln -s /bin/false /usr/bin/cc\n")
    images = {name: f"ratchet-test-{name}:0.0" for name in ("uv", "python")}
    for name, image in images.items():
        run("docker", "build", "--quiet", "--tag", image, "--file", str(folder / f"{name}.Dockerfile"), str(folder))
    yield images
    subprocess.run(["docker", "image", "rm", "--force", *images.values()], capture_output=True, check=False)


@pytest.fixture(scope="module", params=["worker", "trainer"])
def image(request: pytest.FixtureRequest, context: Path, bases: dict[str, str]) -> Iterator[str]:
    name = f"ratchet-test-{request.param}:0.0"
    arguments = {
        "PYTHON_IMAGE": bases["python"],
        "UV_IMAGE": bases["uv"],
        "EXTRAS": "",
        "TORCH_BACKEND": "",
        "UV_OFFLINE": "1",
    }
    options = [each for key, value in arguments.items() for each in ("--build-arg", f"{key}={value}")]
    file = ["--file", str(context / "infra/worker/Dockerfile"), "--target", request.param]
    run("docker", "build", "--network", "none", "--tag", name, *file, *options, str(context))
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)


def inside(image: str, *command: str, options: tuple[str, ...] = ()) -> str:
    confined = ["--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", *options]
    return run("docker", "run", *confined, "--entrypoint", command[0], image, *command[1:])


def test_ratchet_runs_as_an_unprivileged_user_on_a_read_only_root(image: str) -> None:
    assert inside(image, "id", "-u") == "10001"
    assert inside(image, "ratchet", "--version").startswith("ratchet ")
    assert (
        inside(image, "sh", "-c", "touch /project/file && pwd && echo $RATCHET_HOME") == "/project\n/project/.ratchet"
    )


def test_nothing_of_the_build_is_left(image: str) -> None:
    assert inside(image, "sh", "-c", "ls -d /source /root/.cache /usr/local/bin/uv 2>/dev/null || true") == ""
    found = "import importlib.util as u; print([name for name in ('pip', 'uv', 'pytest') if u.find_spec(name)])"
    assert inside(image, "python", "-c", found) == "[]"


def test_a_secret_reaches_the_command_and_not_the_image(image: str, tmp_path: Path) -> None:
    (tmp_path / "SOME_TOKEN").write_text("from a file")
    tmp_path.chmod(0o755)
    options = ("--volume", f"{tmp_path}:/run/secrets:ro")
    script = "/opt/ratchet/worker/with_secrets.sh"
    assert inside(image, "sh", script, "sh", "-c", "echo $SOME_TOKEN", options=options) == "from a file"
    assert "TOKEN" not in run("docker", "image", "inspect", "--format", "{{.Config.Env}}", image)
