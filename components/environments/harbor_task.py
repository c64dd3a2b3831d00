"""HarborLayout: play a Harbor task folder (task.toml, instruction.md, environment/, tests/, solution/) in our sandboxes.

Harbor's absolute paths exist in the sandbox: the first folder of the task's WORKDIR is the workspace, the others are folders
below /tmp (`ImagePlan.links`). With docker the engine builds the task's image. The local sandbox does by itself what a simple
Dockerfile says (COPY, WORKDIR, ENV, and RUN without installations), and refuses any other in one line.

The answer is what the agent has left in the workspace and in /tmp, or the task's `artifacts` and /logs/artifacts where its
verifier is separate. In a fresh sandbox, tests/test.sh then decides by the reward that it writes to /logs/verifier.
"""

import base64
import hashlib
import io
import json
import math
import posixpath
import re
import shlex
import tarfile
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from ratchet.components.core import (
    CommandFailure,
    CommandResult,
    CommandTimeout,
    ConfigurationError,
    Sandbox,
    SandboxUnavailable,
    TaskSpec,
)
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.sandboxes.container_spec import AGENT_USER
from ratchet.components.sandboxes.docker_engine import build_image
from ratchet.components.sandboxes.local_sandbox import LocalSandbox

from .git_mirror import EXECUTABLE_MODE, FILE_MODE, GitFile
from .harbor_image import HARBOR_FOLDERS, SYSTEM_FOLDERS, ImagePlan, installers_in, read_instructions, top_folder
from .peer_task import SUCCESS_REWARD, read_peer_task
from .repository_tasks import tar_archive
from .task_grading import Grade, TaskLayout

Part = Literal["environment", "tests"]
TEST_COMMAND = "bash /tests/test.sh"
SETUP_SECONDS = 300.0
VERIFIER_SECONDS, BUILD_SECONDS = 600.0, 600.0
MAX_ANSWER_BYTES = 64 << 20
MAX_REWARD_BYTES = 1 << 16
SYSTEM_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""An image's own may begin with a folder in which an agent leaves a `tar`."""
MAX_STEPS = 400
ARTIFACTS = "/logs/artifacts"


def _followed(path: str, links: Mapping[str, str]) -> str:
    """Return where an absolute path leads by `links` (target by path); /proc for a circle."""
    waiting, at = path.split("/")[::-1], "/"
    for _ in range(MAX_STEPS):
        if not waiting:
            return at
        if (name := waiting.pop()) in ("", "."):
            continue
        at = posixpath.dirname(at) if name == ".." else posixpath.join(at, name)
        if (target := links.get(at, at)) != at:
            waiting += target.split("/")[::-1]
            at = "/" if target.startswith("/") else posixpath.dirname(at)
    return "/proc"


def encode_file(data: bytes) -> str | dict[str, str]:
    """Return a file's content for a task's criteria: text, or Base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def is_separate(mode: str | None, environment: object) -> bool:
    """Return whether the verifier has its own image. Without a mode, the section `[verifier.environment]` says that it has."""
    return mode == "separate" if mode else environment is not None


class HarborLayout(TaskLayout):
    """One episode of a Harbor task. The sandboxes of a factory give the back end and its limits."""

    def __init__(self, task: TaskSpec) -> None:
        super().__init__(task)
        data = read_peer_task(task.criteria, "harbor").data
        self.config: dict[str, Any] = data["config"]
        self.instruction: str = data["instruction"]
        self.files = {
            path: content.encode() if isinstance(content, str) else base64.b64decode(content["base64"])
            for path, content in data["files"].items()
        }

    @property
    def separate(self) -> bool:
        """Whether the tests run in a second image, which receives the task's artifacts and nothing else of the agent."""
        verifier = self._section("verifier")
        return is_separate(verifier.get("environment_mode"), verifier.get("environment"))

    @cached_property
    def plans(self) -> dict[Part, ImagePlan]:
        """The plans of the agent's and of the tests' image; without a separate verifier both are the agent's."""
        environment = self._plan("environment")
        return {"environment": environment, "tests": self._plan("tests") if self.separate else environment}

    def problem(self) -> str:
        """Return why the local sandbox cannot play the task; empty if it can."""
        problem = self.plans["environment"].problem or self.plans["tests"].problem
        return f"{problem}: its image needs a Docker engine" if problem else self._network_problem()

    def _network_problem(self) -> str:
        needed = installers_in(self.files["tests/test.sh"].decode(errors="replace"))
        return f"tests/test.sh installs with {needed[0]}: it needs docker with `sandbox.egress`" if needed else ""

    def new_sandbox(self, factory: Callable[[], Sandbox], part: Part = "environment") -> Sandbox:
        """See TaskLayout. Raises SandboxUnavailable for a task that needs an engine where there is none."""
        template: Any = factory()
        if template.backend == "docker":
            if not template.config.egress and (problem := self._network_problem()):
                raise self._unavailable(problem)
            if self.plans["environment"].workdir == "/":
                raise self._unavailable("its folder is /, which no sandbox lets an agent change")
            image = self._build_image(part, template.config.start_timeout)
            return make_sandbox(template.config.model_copy(update={"backend": "docker", "image": image}))
        if template.backend != "local":
            raise ConfigurationError(f"Harbor tasks are played with docker or local, not with {template.backend}")
        if problem := self.problem():
            raise self._unavailable(problem)
        return LocalSandbox(template.config, links=self._links(part))

    def adapt_call(self, tool: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a call with the task's paths as those of the workspace, and a command in the task's folder."""
        plan = self.plans["environment"]
        if tool == "bash":
            return params | {"command": f"{plan.shell_prefix()}{{ :; }}\n{params['command']}"}
        if "path" not in params:
            return params if tool != "grep" else params | {"path": self._in_workspace(plan.workdir)}
        return params | {"path": self._in_workspace(posixpath.join(plan.workdir, params["path"]))}

    def prepare_workspace(self, sandbox: Sandbox) -> None:
        """Write the files of the environment and run its commands."""
        self._prepare(sandbox, "environment")

    def collect_answer(self, sandbox: Sandbox) -> bytes | None:
        """Return the files of the agent as a tar archive, from the root; None for too many."""
        paths = ["workspace", "tmp"]
        if self.separate:
            paths = [self._real(path, "environment").lstrip("/") for path in self._artifacts()]
        # Folders of this machine, which may lie in /tmp.
        programs = getattr(sandbox, "config", SandboxConfig()).programs
        excluded = shlex.join(f"--exclude={str(program).lstrip('/')}" for program in programs)
        script = (
            'cd /; for path do [ -e "$path" ] && set -- "$@" "$path"; shift; done; '
            f'[ $# = 0 ] || tar {excluded} -cf - -- "$@"'
        )
        pack = ["/bin/sh", "-c", script, "sh", *paths]
        try:
            return sandbox.run(pack, timeout=SETUP_SECONDS, output_limit=MAX_ANSWER_BYTES, env=SYSTEM_PATH).stdout
        except CommandFailure:
            return None

    def grade(self, answer: Any, sandbox_factory: Callable[[], Sandbox], timeout: float | None = None) -> Grade:
        """Run tests/test.sh on an answer and read its reward: success is at least 1. `answer` True: the reference's."""
        if answer is True:
            answer = self._solve(sandbox_factory)
        if answer is None:
            return Grade(False, 0.0, 0, 1, "no_answer")
        part: Part = "tests" if self.separate else "environment"
        seconds = timeout or float(self._section("verifier").get("timeout_sec") or VERIFIER_SECONDS)
        with self.new_sandbox(sandbox_factory, part) as sandbox:
            self._prepare(sandbox, part, only_folders=not self.separate)
            # Unpacked by the sandbox's user, within the sandbox. What it refuses is the agent's doing.
            if answer and not self._unpack_answer(sandbox, answer):
                return Grade(False, 0.0, 0, 1, "bad_answer")
            if not self.separate:
                self._upload(sandbox, "tests")
            emptied = "/logs/verifier /logs/agent" if self.separate else "/logs/*"
            self._run(sandbox, f"rm -rf {emptied} && mkdir -p /logs/verifier /logs/agent {ARTIFACTS}", "make /logs")
            command = f"{self.plans[part].shell_prefix()}{TEST_COMMAND} > /logs/verifier/test-stdout.txt 2>&1"
            try:
                sandbox.run(["bash", "-c", command], timeout=seconds, env=self._section("verifier").get("env") or {})
            except CommandFailure as failure:
                reason = "timeout" if isinstance(failure, CommandTimeout) else "output_limit"
                return Grade(False, 0.0, 0, 1, reason)
            return read_reward(lambda name: _read(sandbox, f"/logs/verifier/{name}"))

    def _unpack_answer(self, sandbox: Sandbox, answer: bytes) -> bool:
        """Write an answer; return False for one that cannot be written."""
        try:
            archive = self._without_traps(answer)
            unpack = ["/bin/sh", "-c", "tar -xf - -C /"]
            return sandbox.run(unpack, timeout=SETUP_SECONDS, stdin=archive, env=SYSTEM_PATH).exit_code == 0
        except (tarfile.TarError, ValueError, CommandFailure):
            return False

    def _without_traps(self, answer: bytes) -> bytes:
        """Return an agent's archive without files for the folders of the tests and of the rewards, without links into them (one
        to the expected output would equal it), and, for a separate verifier, without all but artifacts. Raises TarError.
        """
        folders = self._links("environment")
        hidden = tuple(f"{folders[f'/{name}']}/" for name in HARBOR_FOLDERS)
        handed = f"{self._real(ARTIFACTS, 'environment')}/"
        own = tuple(f"{self._real(path, 'environment')}/" for path in self._artifacts()) if self.separate else ("/",)
        output = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:") as archive:
            members = {posixpath.normpath(f"/{member.name}"): member for member in archive.getmembers()}
            links = folders | {path: each.linkname for path, each in members.items() if each.issym()}

            def fits(path: str, member: tarfile.TarInfo) -> bool:
                # The sandbox's own folders keep their modes: with an agent's, the tests could not be written.
                if path in ("/workspace", "/tmp", "/tmp/harbor"):
                    return False
                at = f"{path}/"
                if not at.startswith(own) or (at.startswith(hidden) and not at.startswith(handed)):
                    return False
                if _followed(posixpath.dirname(path), links) != posixpath.dirname(path):
                    return False
                if member.isreg() or member.isdir():
                    return not member.issparse()
                if not member.issym():
                    return member.islnk() and posixpath.normpath(f"/{member.linkname}") in members
                target = f"{_followed(path, links)}/"
                of_agent = target.startswith(own) or not target.startswith(("/workspace/", "/tmp/"))
                return of_agent and not target.startswith((*hidden, "/proc/", "/dev/"))

            kept = {path: member for path, member in members.items() if fits(path, member)}
            with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as copy:
                for member in kept.values():
                    if not member.islnk() or posixpath.normpath(f"/{member.linkname}") in kept:
                        copy.addfile(member, archive.extractfile(member) if member.isreg() else None)
        return output.getvalue()

    def validation_answers(self) -> list[tuple[Any, bool, str]]:
        """See TaskLayout: an agent that does nothing must fail, and solution/solve.sh must pass."""
        trials: list[tuple[Any, bool, str]] = [(b"", False, "an agent that does nothing passes; it must fail")]
        if "solution/solve.sh" in self.files:
            trials.append((True, True, "solution/solve.sh fails; it must pass"))
        return trials

    def _solve(self, factory: Callable[[], Sandbox]) -> bytes | None:
        with self.new_sandbox(factory) as sandbox:
            self._prepare(sandbox, "environment")
            self._upload(sandbox, "solution")
            command = f"{self.plans['environment'].shell_prefix()}bash /solution/solve.sh"
            env = self._section("solution").get("env") or {}
            sandbox.run(["bash", "-c", command], timeout=SETUP_SECONDS, env=env)
            return self.collect_answer(sandbox)

    def _prepare(self, sandbox: Sandbox, part: Part, only_folders: bool = False) -> None:
        targets = self._links(part)
        folders = [*targets.values(), self._real(ARTIFACTS, part)]
        self._run(sandbox, shlex.join(["mkdir", "-p", *folders]), "make the folders")
        if sandbox.backend == "docker" and not only_folders:
            copies = [shlex.join(["cp", "-a", f"/ratchet{path}/.", f"{target}/"]) for path, target in targets.items()]
            self._run(sandbox, " && ".join(copies), "copy the image's files")
        elif not only_folders:
            for step in self.plans[part].steps:
                if isinstance(step, str):
                    self._run(sandbox, step, f"RUN {step}")
                else:
                    self._write(sandbox, part, step)

    def _upload(self, sandbox: Sandbox, folder: str) -> None:
        self._run(sandbox, f"rm -rf /tmp/harbor/{folder} && mkdir -p /tmp/harbor/{folder}", f"empty /{folder}")
        files = {f"/{folder}/{path}": data for path, data in self._below(folder).items()}
        self._write(sandbox, "environment", files)

    def _write(self, sandbox: Sandbox, part: Part, files: Mapping[str, bytes]) -> None:
        packed = _archive({self._real(path, part).lstrip("/"): data for path, data in files.items()})
        self._run(sandbox, "tar -xf - -C /", "write the files", packed)

    def _run(self, sandbox: Sandbox, command: str, action: str, stdin: bytes = b"") -> CommandResult:
        try:
            result = sandbox.run(["bash", "-c", command], timeout=SETUP_SECONDS, stdin=stdin)
        except CommandFailure as failure:
            raise self._unavailable(f"{action[:120]}: {failure}") from failure
        if result.exit_code:
            message = " ".join((result.stderr_text or result.stdout_text).split())[:160]
            raise self._unavailable(f"cannot {action[:120]} in this sandbox: {message}; a Docker engine may build it")
        return result

    def _unavailable(self, problem: str) -> SandboxUnavailable:
        return SandboxUnavailable(f"task {self.task.task_id}: {problem}")

    def _build_image(self, part: Part, timeout: float) -> str:
        """Return the image of a part, in which the folders of the root are links; the engine keeps it under its content."""
        section = self._image_section(part)
        context = self._below(part)
        own = context.get("Dockerfile", b"FROM ubuntu:24.04\n").decode()
        dockerfile = f"FROM {section['docker_image']}\n" if section.get("docker_image") else own
        moves = "; ".join(
            f"mkdir -p {path} /ratchet{path}; cp -a {path}/. /ratchet{path}/; "
            + ("true" if path == target else f"rm -rf {path}; ln -s {target} {path}")
            for path, target in ((shlex.quote(path), shlex.quote(target)) for path, target in self._links(part).items())
        )
        # The sandbox's user stands for the task's own: it owns what that one owns, or everything if that is root.
        users = [line.split()[1] for line in read_instructions(dockerfile) if re.match(r"(?i)USER\s+\S", line)]
        user = str(self._section("agent").get("user") or ["root", *users][-1]).partition(":")[0]
        owner = "" if user in ("root", "0") else f"--from={shlex.quote(user)} "
        moves += f"; chown -hR {owner}{AGENT_USER} /ratchet"
        context = context | {"Dockerfile": f"{dockerfile}\nUSER root\nWORKDIR /\nRUN set -e; {moves}\n".encode()}
        archive = _archive(context)
        tag = f"ratchet-harbor:{hashlib.sha256(archive).hexdigest()[:16]}"
        build_image(tag, archive, timeout, float(section.get("build_timeout_sec") or BUILD_SECONDS))
        return tag

    def _plan(self, part: Part) -> ImagePlan:
        section, context = self._image_section(part), self._below(part)
        plan = ImagePlan.read(context.get("Dockerfile", b"").decode(errors="replace"), context)
        plan.workdir = section.get("workdir") or plan.workdir
        plan.env = {**plan.env, **(section.get("env") or {})}
        if section.get("docker_image"):
            plan.problem = f"it names the image {section['docker_image']}"
        if top_folder(plan.workdir) in SYSTEM_FOLDERS | {""}:
            plan.problem = plan.problem or f"its folder is {plan.workdir}"
        written = (path for step in plan.steps if isinstance(step, dict) for path in step)
        if bad := next((path for path in written if top_folder(path) in SYSTEM_FOLDERS), None):
            plan.problem = plan.problem or f"it writes {bad}"
        return plan

    def _links(self, part: Part) -> dict[str, str]:
        # Alike in both parts, since the answer moves from one to the other. `x`: texts name folders by what is in them.
        texts = [self.instruction, *(f"{path}/x" for path in self._artifacts())]
        workdir = self.plans["environment"].workdir
        top = top_folder(workdir)
        return self.plans[part].links(texts, workdir if top in SYSTEM_FOLDERS else f"/{top}")

    def _artifacts(self) -> list[str]:
        given = self.config.get("artifacts") or ()
        return [*(str(entry["source"] if isinstance(entry, dict) else entry) for entry in given), ARTIFACTS]

    def _real(self, path: str, part: Part) -> str:
        """Return where an absolute path of the task is in the sandbox."""
        path = posixpath.normpath(path)
        for folder, target in self._links(part).items():
            if f"{path}/".startswith(f"{folder}/"):
                return target + path[len(folder) :]
        return path

    def _in_workspace(self, path: str) -> str:
        """Return a path for the tools, which know the workspace alone."""
        real = self._real(path, "environment")
        return posixpath.relpath(real, "/workspace") if (real + "/").startswith("/workspace/") else path

    def _below(self, folder: str) -> dict[str, bytes]:
        prefix = f"{folder}/"
        return {path.removeprefix(prefix): data for path, data in self.files.items() if path.startswith(prefix)}

    def _image_section(self, part: Part) -> dict[str, Any]:
        """Return the settings of a part's image."""
        own: dict[str, Any] = self._section("environment")
        if part == "environment":
            return own
        # Without `[verifier.environment]`, a separate verifier uses the settings of `[environment]` except its image.
        theirs: dict[str, Any] | None = self._section("verifier").get("environment")
        return {**own, "docker_image": None} if theirs is None else theirs

    def _section(self, name: str) -> dict[str, Any]:
        section: dict[str, Any] = self.config.get(name) or {}
        return section


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive in which scripts are executable."""
    return tar_archive(
        {path: GitFile(EXECUTABLE_MODE if data[:2] == b"#!" else FILE_MODE, data) for path, data in files.items()}
    )


def _read(sandbox: Sandbox, path: str) -> bytes | None:
    """Return a file; None if there is none that is small enough."""
    try:
        result = sandbox.run(["cat", path], output_limit=MAX_REWARD_BYTES)
    except CommandFailure:
        return None
    return result.stdout if result.exit_code == 0 else None


def read_reward(read: Callable[[str], bytes | None]) -> Grade:
    """Grade by the files of a verifier, as Harbor does: reward.json (a number, or numbers by name) before reward.txt.

    The score is the number named `reward`, or else the mean of all. Without a finite number nothing passes.
    """
    try:
        if (text := read("reward.json")) is not None:
            value = json.loads(text)
            values = value if isinstance(value, dict) else {"reward": value}
        elif (text := read("reward.txt")) is not None:
            values = {"reward": float(text)}
        else:
            return Grade(False, 0.0, 0, 1, "no_reward")
        numbers = [float(value) for value in values.values() if isinstance(value, int | float)]
        if not numbers or len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
            raise ValueError("a reward is a finite number")
        score = float(values["reward"]) if "reward" in values else sum(numbers) / len(numbers)
    except (ValueError, OverflowError, RecursionError):
        return Grade(False, 0.0, 0, 1, "bad_reward")
    success = score >= SUCCESS_REWARD
    return Grade(success, score, int(success), 1, "passed" if success else "tests_failed")
