"""A night in seconds: the real flow, state, lock, spool, sealing, reaping and job processes, around a trivial policy and trainer.

Run as a program it is one of three processes. `serve` imports the flow once, then forks a process for each night that it is
asked for on stdin (a JSON object a line). `collect` and `train` stand in for the two kinds of job. All of them obey the faults
of `SIMULATED_FAULTS` (see `FaultHook`).

Left out, because each has fault tests of its own: the Prefect and MLflow servers, with lost connections (test_topology.py stops
each of them during a night, tests/components/tracking ends a process between any two changes of the registry and lets MLflow fail),
DVC (test_build_killed.py kills a build at each of its writes), containers (tests/docker/test_faults.py), torch.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {"os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0, "os.link": 1, "os.truncate": 0}
"""Events of a change of a file, and which argument is its path."""
SCALE = """
taskset: sums
teacher: teacher
concurrency: 2
demonstrations: {tasks: 6, attempts: 1, cohort_size: 3, workers: 1}
cold_start: {model: {shape: {hidden: 8, layers: 1, heads: 1, kv_heads: 1, intermediate: 8, vocabulary: 300, context: 64}}}
collection: {tasks: 6, attempts: 2, temperature: 1.0, cohort_size: 4, workers: 1}
recipe: sft
size: smoke
evaluation: {promote: 24, audit: 4, attempts: 1, temperature: 0.6, cohort_size: 14, workers: 1}
promotion: {min_tasks: 4, min_families: 2, n_resamples: 200, kind_margin: null, invalid_call_margin: 0.9, steps_margin: 9.0,
  tokens_margin: 9.0, unsafe_margin: 0.9}
"""


class FaultHook:
    """An audit hook that makes one fault happen at the write of a number: of this process, in the project.

    `kill`: this process, `kill night`: the night's, both by SIGKILL; `full disk`: ENOSPC from then on; `broken disk`: one
    EIO; `memory`: one allocation fails (under RLIMIT_AS, CPython's `Thread.start` waits for ever where the new thread finds no
    memory; without it Linux kills); `slow disk`: ten slow writes.
    """

    def __init__(self, kind: str) -> None:
        faults = json.loads(os.environ.get("SIMULATED_FAULTS", "[]"))
        self.fault = next((fault for fault in faults if fault["process"] == kind), None)
        self.root = os.environ["SIMULATED_ROOT"]
        self.writes, self.is_busy, self.fired = 0, False, 0
        if self.fault is not None:
            sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_busy:
            return
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            path = arguments[0]
        elif event in CHANGES:
            path = arguments[CHANGES[event]]
        else:
            return
        if not isinstance(path, str | bytes | os.PathLike) or not self.is_ours(os.fsdecode(path)):
            return
        self.is_busy = True
        try:
            self.writes += 1
            if self.writes >= self.fault["write"] and not event.endswith(("remove", "rmdir")):
                self.happen(self.fault["what"], os.fsdecode(path))
        finally:
            self.is_busy = False

    def is_ours(self, path: str) -> bool:
        return path.startswith(self.root) or not path.startswith("/")

    def happen(self, what: str, path: str) -> None:
        self.fired += 1
        if self.fired == 1:
            with Path(os.environ["SIMULATED_LOG"]).open("a") as log:
                log.write(f"{what} in {self.fault['process']} at write {self.writes}: {path.removeprefix(self.root)}\n")
        if what == "full disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if what == "slow disk" and self.fired <= 10:
            time.sleep(0.1)
        if self.fired > 1:
            return
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "kill night":
            os.kill(int(os.environ["SIMULATED_NIGHT"]), signal.SIGKILL)
        if what == "broken disk":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if what == "memory":
            raise MemoryError


def set_clock() -> None:
    """Let this process live `SIMULATED_CLOCK` seconds off."""
    if offset := float(os.environ.get("SIMULATED_CLOCK", "0")):
        real, real_ns = time.time, time.time_ns
        time.time, time.time_ns = lambda: real() + offset, lambda: real_ns() + int(offset * 1e9)

        class Shifted(datetime):
            @classmethod
            def now(cls, zone: Any = None) -> datetime:
                return datetime.now(zone) + timedelta(seconds=offset)

        for name, module in list(sys.modules.items()):
            if name.startswith("ratchet.") and getattr(module, "datetime", None) is datetime:
                vars(module)["datetime"] = Shifted


def train(config_file: Path) -> int:
    """Four steps that hash the rows, with a heartbeat, metrics and checkpoints; goes on from the newest checkpoint."""
    from ratchet.components.core.files import write_json
    from ratchet.components.training.checkpoint_io import (
        atomic_folder,
        checkpoint_step,
        intermediate_checkpoint_folder,
        newest_checkpoint,
        remove_intermediate_checkpoints,
    )
    from ratchet.components.training.heartbeat import Heartbeat

    config = json.loads(config_file.read_bytes())
    config = json.loads(config) if isinstance(config, str) else config
    output, rows = Path(config["output"]), Path(config["data"]["train"]).read_bytes()
    base = config["model"].get("base")
    skill = json.loads((Path(base) / "config.json").read_bytes())["skill"] if base else 0.3
    skill += 0.25 if output.name == "challenger" and skill < 0.9 else 0.0
    saved = newest_checkpoint(output)
    step = checkpoint_step(saved) if saved else 0
    digest = (Path(saved) / "state").read_text() if saved else hashlib.sha256(rows).hexdigest()
    with Heartbeat(output, 0.05) as heartbeat:
        while step < 4:
            step += 1
            heartbeat.phase("training", step)
            digest = hashlib.sha256(f"{digest} {step} {config['seed']}".encode()).hexdigest()
            with (output / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "total_steps": 4, "loss": 1 / step}) + "\n")
            with atomic_folder(intermediate_checkpoint_folder(output) / f"checkpoint-{step}") as folder:
                (folder / "state").write_text(digest)
                (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        with atomic_folder(output / "checkpoint") as folder:
            header = b'{"w":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}'
            (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + digest.encode())
            (folder / "config.json").write_text(json.dumps({"skill": skill, "name": output.name}))
        report = {"steps": 4, "tokens": 100, "rows": rows.count(b"\n"), "seconds": 1.0, "tokens_per_second": 100.0}
        report |= {"parameters": 64, "train_loss": 0.25, "validation_loss": None, "best_step": 4, "converged": True}
        write_json(output / "report.json", report | {"checkpoint": str(output / "checkpoint")})
        remove_intermediate_checkpoints(output)
    return 0


def collect(job: Path) -> int:
    """The real collection, of a policy that knows as many answers as its checkpoint's skill says, in a world of words."""
    from ratchet.components.core import Environment, TimeStep
    from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
    from ratchet.components.models import scripted_policies
    from ratchet.components.models.checkpoint_folders import checkpoint_version
    from ratchet.components.rollouts import collect_job, collection

    class Quiz(Environment):
        tools = ()

        def reset(self, *, task: Any = None, seed: int | None = None) -> TimeStep:
            self.right = task.reference[REFERENCE_REPLY_FILE]
            return TimeStep(task.description)

        def step(self, action: Any) -> TimeStep:
            raise NotImplementedError

        def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
            outcome = {"success": text == self.right, "score": float(text == self.right), "reason": "answered"}
            return TimeStep("", outcome["score"], True, info={"outcome": outcome})

    class Skilled(scripted_policies.Teacher):
        name = "transformers"

        def __init__(self, taskset: Any, checkpoint: Path) -> None:
            super().__init__(taskset)
            self.version = checkpoint_version(checkpoint)
            self.skill = json.loads((checkpoint / "config.json").read_bytes())["skill"]

        def reply(self, reference: str, rng: Any) -> str:
            return reference if rng.random() < self.skill else "I do not know."

    usual = collection.play_into

    def play_into(folder: Path, planned: Any, identity: str, plan: Any, taskset: Any, **options: Any) -> Any:
        _, _, checkpoint = plan.policy.partition(":")
        policy = Skilled(taskset, Path(checkpoint)) if checkpoint else scripted_policies.Teacher(taskset)
        agent = collection.LoadedAgent(policy, Quiz)
        return usual(folder, planned, identity, plan, taskset, **{**options, "agent": agent})

    collection.play_into = play_into
    return collect_job.main(job)


class Registry:
    """MLflow's registry in one file: what was done, in order, each once."""

    path = Path("registry.json")

    def read(self) -> dict[str, Any]:
        return (
            json.loads(self.path.read_bytes())
            if self.path.exists()
            else {"models": [], "champions": [], "decisions": {}}
        )

    def write(self, content: dict[str, Any]) -> None:
        from ratchet.components.core.files import write_json

        write_json(self.path, content)

    def register(self, title: str, model: Any, **_: Any) -> Any:
        import msgspec

        content = self.read()
        entry = [title, json.loads(msgspec.json.encode(model))]
        if entry not in content["models"]:
            content["models"].append(entry)
            self.write(content)
        return msgspec.structs.replace(model, version=content["models"].index(entry) + 1)

    def promote(self, version: int, why: str, *, first: bool = False, **_: Any) -> int:
        content = self.read()
        if content["champions"][-1:] != [version]:
            content["champions"].append(version)
            if first:
                content["anchor"] = version
            self.write(content)
        return version

    def move_anchor(self, version: int) -> int:
        content = self.read()
        content["anchor"] = version
        self.write(content)
        return version

    def keep_decision(self, version: int, decision: Any) -> int:
        content = self.read()
        content["decisions"][str(version)] = decision.verdict
        self.write(content)
        return version

    def champion(self) -> Any:
        champions = self.read()["champions"]
        return self.load(champions[-1]) if champions else None

    def anchor(self) -> Any:
        return self.load(self.read()["anchor"])

    def load(self, version: int) -> Any:
        import msgspec

        from ratchet.components.models.checkpoint_folders import check_checkpoint
        from ratchet.components.nights.night_models import NightModel

        content = self.read()
        model = msgspec.convert(content["models"][version - 1][1], NightModel)
        check_checkpoint(Path(model.checkpoint))
        return msgspec.structs.replace(model, version=version)


class Task:
    """A Prefect task without Prefect: called, or submitted to a thread; tried once again after an InfrastructureError."""

    pool: ThreadPoolExecutor | None = None

    def __init__(self, fn: Any, retries: int = 0) -> None:
        self.fn, self.retries = fn, retries

    def __call__(self, *args: Any, **options: Any) -> Any:
        from ratchet.components.core import InfrastructureError

        try:
            return self.fn(*args, **options)
        except InfrastructureError:
            if not self.retries:
                raise
            return self.fn(*args, **options)

    def submit(self, *args: Any) -> Any:
        Task.pool = Task.pool or ThreadPoolExecutor(3)
        return Task.pool.submit(self, *args)


def stand_in_for_prefect() -> None:
    """Give the flow's modules what they import of Prefect, whose import takes as long as a night here."""
    contents: dict[str, dict[str, Any]] = {
        "prefect": {
            "task": lambda retries=0, **_: lambda fn: Task(fn, retries),
            "flow": lambda **_: lambda fn: fn,
            "tags": lambda *_: contextlib.nullcontext(),
        },
        "prefect.cache_policies": {"NO_CACHE": None},
        "prefect.task_runners": {"ThreadPoolTaskRunner": lambda **_: None},
    }
    for name, content in contents.items():
        vars(sys.modules.setdefault(name, types.ModuleType(name))).update(content)


class NoRun:
    """An MLflow run that takes everything."""

    run_id = None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self

    def __enter__(self) -> "NoRun":
        return self

    def __exit__(self, *error: object) -> None:
        return None


def run_dvc(arguments: list[str], root: Path) -> str:
    """`dvc add` and `dvc checkout` of folders, with a cache of whole folders."""
    from ratchet.components.core import InfrastructureError
    from ratchet.components.core.files import write_atomically
    from ratchet.components.datasets.versioning.dvc_lock import dvc_md5, read_pointer

    for target in arguments[1:]:
        folder = root / target.removesuffix(".dvc")
        if arguments[0] == "add":
            md5 = dvc_md5(folder)
            try:
                shutil.copytree(folder, root / "cache" / md5, dirs_exist_ok=True)
            except shutil.Error as error:  # of many files
                raise InfrastructureError(f"`dvc add` failed: {error.args[0][0][2]}") from error
            pointer = {"outs": [{"md5": md5, "hash": "md5", "path": folder.name}]}
            write_atomically(folder.with_name(f"{folder.name}.dvc"), json.dumps(pointer).encode() + b"\n")
        else:
            shutil.copytree(root / "cache" / read_pointer(root / target)[1], folder)
    return ""


def run_build(nights: list[str], *, scale: str, seed: int, as_of: str, baseline: str | None = None, root: Path) -> Any:
    """Sealed nights in, rows out: one of each success. The sealed folders are verified as by a real build."""
    from ratchet.components.core.files import open_atomically
    from ratchet.components.datasets import versioning
    from ratchet.components.datasets.versioning.build_inputs import write_build
    from ratchet.components.trajectories.shards import read_folder
    from ratchet.flows.steps.build import DATASETS_FOLDER

    write_build(versioning.BuildInputs(tuple(nights), as_of=as_of, scale=scale, seed=seed, baseline=None), root=root)
    rows = [
        json.dumps({"night": night, "episode_id": episode.episode_id, "content": episode.content_hash}).encode() + b"\n"
        for night in nights
        for episode in read_folder(root / "data/rollouts" / night)
        if episode.outcome.success
    ]
    for part, content in (("train", rows), ("validation", [])):
        with open_atomically(root / DATASETS_FOLDER / "sft" / f"{part}.jsonl") as file:
            file.writelines(content)
    lock = hashlib.sha256(b"".join(rows)).hexdigest()
    return {"metrics": {"sft_rows": len(rows)}, "lock_hash": lock, "seconds": 0.1}


def seal_uses(night: str, trainings: Any) -> str:
    from ratchet.components.datasets.versioning import sealed_nights

    if not (sealed_nights.USES / night).exists():
        content = b"".join(json.dumps([use.model, use.build]).encode() + b"\n" for use in trainings)
        sealed_nights.seal_file(sealed_nights.USES, night, content)
    return sealed_nights.add_sealed([night], sealed_nights.USES)[night]


def publish(night: str, decision: Any) -> dict[str, Any]:
    from ratchet.components.core.files import write_json

    Path("data/decisions").mkdir(parents=True, exist_ok=True)
    write_json(Path("data/decisions") / f"{night}.json", decision)
    return {"tag": f"night/{night}"}


def put_in_place() -> None:
    """Replace the servers, DVC and torch in this process."""
    import ratchet.tasks.collect
    from ratchet.components.datasets.versioning import dvc_client
    from ratchet.components.training import job_process
    from ratchet.flows import nightly, run_night
    from ratchet.flows.steps import build, evaluate, judge, promote, train

    registry = Registry()

    @contextlib.contextmanager
    def flow_process(title: str, log_name: str) -> Any:
        run_night.log_to_file(log_name)
        yield lambda: ""

    run_night.flow_process, run_night.close_stale_runs = flow_process, lambda *_: 0
    nightly.nightly = nightly.run_whole_night
    nightly.tag_own_run = lambda *tags: None
    nightly.night_run = lambda *args, **options: NoRun()
    nightly.find_champion, nightly.promote = registry.champion, registry.promote
    train.register, promote.promote, promote.keep_decision = registry.register, registry.promote, registry.keep_decision
    promote.roll_back, promote.move_anchor = registry.promote, registry.move_anchor
    evaluate.find_anchor, evaluate.log_evaluation = registry.anchor, lambda *_: None
    nightly.pin_sandbox = lambda scale: scale
    judge.seal_labels, judge.log_traces = lambda night: {"labels": 0}, lambda *args, **options: {}
    judge.score_path, judge.read_judgement_file = lambda *args: iter(()), lambda *args: iter(())
    train.run_as_flow = lambda name, work: work()
    build.run_build, build.keep_build, build.seal_uses, build.publish_night = (
        run_build,
        lambda *_: "",
        seal_uses,
        publish,
    )
    dvc_client.run_dvc = run_dvc
    for module, kind in ((ratchet.tasks.collect, "collect"), (job_process, "train")):

        def run(command: list[str], kind: str = kind, usual: Any = module.run_job_process, **options: Any) -> None:
            usual([sys.executable, __file__, kind, command[-1]], **options)

        module.run_job_process = run


def play(arguments: list[str]) -> int:
    """One command line in this process, which a fork made."""
    os.environ["SIMULATED_NIGHT"] = str(os.getpid())
    set_clock()
    FaultHook("night")
    put_in_place()
    from ratchet import cli

    return cli.run(arguments)


def serve() -> None:
    """Import what a night needs, then fork a process for each request; answer with its exit code and its peak memory."""
    stand_in_for_prefect()
    from ratchet import cli  # noqa: F401
    from ratchet.flows import nightly, run_night  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if (pid := os.fork()) == 0:
            code = 70
            try:
                os.setsid()
                os.chdir(request["cwd"])
                os.environ.update(request["env"])
                log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(log, 1)
                os.dup2(log, 2)
                code = play(request["arguments"])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status, usage = os.wait4(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss]), flush=True)


class NightServer:
    """The `serve` process."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def run(self, project: Path, arguments: list[str], **env: str) -> tuple[int, int, str]:
        """Exit code, peak memory in KiB, and what a command printed in a project."""
        log = project.with_name(f"{project.name}.out")
        named = {"RATCHET_HOME": str(project / "home"), "SIMULATED_ROOT": str(project), **env}
        request = {"cwd": str(project), "log": str(log), "arguments": arguments, "env": named}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        code, memory = json.loads(self.process.stdout.readline())
        return code, memory, log.read_text(errors="replace")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def make_project(folder: Path) -> Path:
    """A project whose scale is tiny."""
    folder.mkdir()
    (folder / "dvc.yaml").write_text("stages: {}\n")
    (folder / "small.yaml").write_text(SCALE)
    return folder


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        set_clock()
        FaultHook(sys.argv[1])
        sys.exit({"collect": collect, "train": train}[sys.argv[1]](Path(sys.argv[2])))
