"""Episodes that a program plays: it runs in the task's sandbox, its model is the gateway, and the task's own grading decides."""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ratchet.components.core import CommandFailure, ConfigurationError, InfrastructureError, Policy, TimeStep
from ratchet.components.models.gateway.gateway_server import GatewayServer
from ratchet.components.models.gateway.gateway_sessions import Gateway, Session, SessionTask
from ratchet.components.models.gateway.message_tree import RecordedBranch, SessionRecord
from ratchet.components.models.gateway.policy_queue import PolicyQueue
from ratchet.components.models.gateway.session_store import KEY_PLACEHOLDER, without_keys
from ratchet.components.sandboxes import in_container
from ratchet.components.sandboxes.docker_sandbox import DockerSandbox
from ratchet.components.sandboxes.local_command import shared_launcher
from ratchet.components.sandboxes.local_sandbox import LocalSandbox
from ratchet.components.trajectories.trajectory import Outcome, TaskRef, Trajectory

from .episode_runner import Episode, EpisodeSettings
from .harness_config import PORT, HarnessConfig

GRACE_SECONDS = 120.0
"""Seconds beyond a harness's own time limit after which its episode counts as hung."""
STDERR_CHARACTERS = 400


def _launcher_text() -> str:
    """Return the program that starts a harness inside a sandbox, which sees no file of this installation."""
    folder = Path(in_container.__file__).parent
    forwarder, launcher = ((folder / f"{name}.py").read_text() for name in ("egress_forwarder", "harness_launcher"))
    launcher = launcher.replace("from .egress_forwarder import EgressForwarder\n", "")
    return f"{forwarder}\n{launcher}\nsys.exit(launch())\n"


class Harness:
    """A harness and the gateway that its attempts share. Thread-safe."""

    def __init__(self, config: HarnessConfig, server: GatewayServer, socket: Path) -> None:
        self.config = config
        self._server = server
        self._socket = socket
        self._launcher = _launcher_text()

    def open(self, record: SessionRecord, stream: int) -> Session:
        """Begin the session of one attempt, whose sampling `stream` seeds."""
        task = SessionTask(record.task.task_id, record.task.description, record.attempt, stream)

        async def begin() -> Session:
            return self._server.gateway.open(record.episode_id + f"-{time.monotonic_ns()}", task, record)

        return self._server.call(begin())  # type: ignore[no-any-return]

    def finish(self, session: Session, outcome: Outcome) -> list[RecordedBranch]:
        """End a session and return its branches, without the session's key."""
        branches: list[RecordedBranch] = self._server.call(self._server.gateway.finish(session, outcome))
        return [_without_key(branch, session.key) for branch in branches]

    def run(
        self, sandbox: LocalSandbox | DockerSandbox, session: Session, description: str, tools: str
    ) -> dict[str, object]:
        """Run the program to its end or its time limit; return `exit_code` (None if it was ended), `seconds` and the end of
        its `stderr`. Raises SandboxUnavailable.
        """
        config, root = self.config, f"http://127.0.0.1:{PORT}"
        words = {"task": description, "model": self._server.gateway.model, "key": session.key}
        words |= {"root_url": root, "base_url": f"{root}/v1"}
        command, files, own = config.job(words)
        folders = [f"{folder.absolute()}/{name}" for folder in config.programs for name in ("bin", ".bin")]
        job = {
            "socket": sandbox.share_socket(self._socket),
            "port": PORT,
            "files": files,
            "argv": command,
            "path": folders,
        }
        env = {
            "OPENAI_BASE_URL": words["base_url"],
            "OPENAI_API_BASE": words["base_url"],
            "OPENAI_API_KEY": session.key,
            "OPENAI_MODEL": words["model"],
            "ANTHROPIC_BASE_URL": root,
            "ANTHROPIC_API_KEY": session.key,
            "RATCHET_TASK": description,
            "RATCHET_TOOLS": tools,
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),  # `egress` sets a proxy, which knows no gateway
            **own,
        }
        argv = ["/usr/bin/env", "python3", "-I", "-c", self._launcher]
        begin = time.monotonic()
        try:
            result = sandbox.run(argv, timeout=config.timeout, stdin=json.dumps(job).encode(), env=env)
            code: int | None = result.exit_code
        except CommandFailure as failure:
            result, code = failure.result, None
        stderr = (result.stderr_text + result.stdout_text).replace(session.key, KEY_PLACEHOLDER)[-STDERR_CHARACTERS:]
        return {"name": config.name, "exit_code": code, "seconds": round(time.monotonic() - begin, 1), "stderr": stderr}


def _without_key(branch: RecordedBranch, key: str) -> RecordedBranch:
    trajectory, _ = branch
    hidden = without_keys(trajectory, [key])
    return branch if hidden is trajectory else (hidden, [])  # the token ids spell the key


class HarnessEpisode(Episode):
    """An attempt of a harness. `branches`: records of the attempt beside its trajectory."""

    branches: tuple[Trajectory, ...] = ()

    def _play(self) -> None:
        harness, planned = self.settings.harness, self.planned
        assert harness is not None
        self.begin()
        sandbox = getattr(self.environment.unwrapped, "sandbox", None)
        if not isinstance(sandbox, LocalSandbox | DockerSandbox):
            raise ConfigurationError(
                "a harness plays in the docker or local sandbox of a task with files; take a coding taskset and one of the two"
            )
        if sandbox.isolation == "limits":
            raise ConfigurationError(
                "a harness needs a sandbox with namespaces, so that the gateway is its only way out; see `ratchet doctor`"
            )
        session = harness.open(self._session_record(), planned.policy_seed)
        try:
            self._play_session(harness, session, sandbox)
        finally:  # of a lost attempt too: the gateway would hold its conversation for ever
            harness.finish(session, Outcome())

    def _play_session(self, harness: Harness, session: Session, sandbox: LocalSandbox | DockerSandbox) -> None:
        planned = self.planned
        self.stage, self.deadline = "act", time.monotonic() + harness.config.timeout + GRACE_SECONDS
        tools = json.dumps([tool.as_openai() for tool in self.environment.tools])
        ended = harness.run(sandbox, session, planned.task.description, tools)
        if session.model_failure:
            raise InfrastructureError(session.model_failure)
        if not session.tree.replies:
            raise InfrastructureError(
                f"the harness {harness.config.name} asked for nothing (exit code {ended['exit_code']}): "
                f"{' '.join(str(ended['stderr']).split())}"
            )
        if ended["exit_code"] is None:
            step = self._grade("harness_timeout")
        else:
            self._enter("grade")
            step = self.environment.step({"tool": "submit", "params": {}})
        self._record(harness, session, step, ended)

    def _session_record(self) -> SessionRecord:
        planned = self.planned
        return SessionRecord(
            episode_id=planned.episode_id,
            group_id=planned.group_id,
            attempt=planned.attempt,
            seed=planned.seed,
            task=TaskRef.from_task(planned.task),
            agent=self.settings.agent,
            outcome=Outcome(),
            provenance=self.provenance,
        )

    def _record(self, harness: Harness, session: Session, step: TimeStep, ended: dict[str, object]) -> None:
        graded = {**(step.info.get("outcome") or {}), "terminated": step.terminated, "truncated": step.truncated}
        main, *others = harness.finish(session, msgspec.convert(graded, Outcome))
        trajectory, tokens = main
        extra = {**trajectory.source_extra, "harness": ended}
        self.recorder.tokens = [*tokens, *(row for _, rows in others for row in rows)]
        self.branches = tuple(branch for branch, _ in others)
        self._end(trajectory=msgspec.structs.replace(trajectory, source_extra=extra))


@contextmanager
def open_harness(config: HarnessConfig, policy: Policy, kind: str, concurrency: int) -> Iterator[Harness]:
    """Yield the harness with a gateway for `policy`, which answers `concurrency` requests at once."""
    socket = shared_launcher().new_folder() / "gateway.sock"

    async def forward(session: Session, branches: list[RecordedBranch]) -> None:
        """Keep nothing: the collection saves what `finish` returns."""

    def make() -> Gateway:
        queue = PolicyQueue(policy, concurrency=concurrency)
        return Gateway(policy, kind, forward, key=secrets.token_urlsafe(32), limits=config.limits, queue=queue)

    with GatewayServer(make, path=socket) as server:
        yield Harness(config, server, socket)


def harness_settings(settings: EpisodeSettings, harness: Harness) -> EpisodeSettings:
    """Return the settings of a collection that the harness plays."""
    agent = msgspec.structs.replace(settings.agent, scaffold=f"{settings.agent.scaffold} {harness.config.name}")
    return msgspec.structs.replace(settings, agent=agent, harness=harness)
