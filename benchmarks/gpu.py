"""Tests and training speed on this machine's GPU: `make gpu`. Ten minutes, no network, no model hub.

    python benchmarks/gpu.py [--rows sft grpo] [--budget 600] [--out FOLDER] [--rehearse]

Models have the shape of Qwen2.5-0.5B and random weights. Each row of the table runs in its own process with a limit of
seconds, so a crash, a hang or a lack of memory costs one row. After each row FOLDER/CARD.json is written again
(`GpuResults`); FOLDER is benchmarks/results. Rows that are not named keep their figures of an earlier run. Only torch
and transformers are certain to be installed: a row that needs more is skipped and names what is missing.
`benchmarks/gpu_rows.py` measures.

MFU is model FLOPs utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): TRL's `compute_flops_per_token`, times
tokens per second, divided by TRL's `get_peak_flops` of the card in bfloat16. In the row `grpo` it is that of the training
phase: a step without its rollout. `--rehearse` runs every row with tiny shapes on the CPU; its figures mean nothing.

Exit code 1 where a row failed or missed its goal, 4 where the machine has no CUDA GPU.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal, NamedTuple

HERE = Path(__file__).resolve().parent
PACKAGES = ("torch", "transformers", "accelerate", "trl", "peft", "datasets", "triton", "flash-attn", "liger-kernel")
PACKAGES += ("bitsandbytes", "vllm", "msgspec", "pydantic")
OURS = ("msgspec", "pydantic", "trl", "datasets", "accelerate")
PLAYING = (*OURS, "tree_sitter", "tree_sitter_bash")


class Row(NamedTuple):
    """A row of the table. `needs`: modules that must be installed; `limit`: seconds; `goal`: least MFU."""

    name: str
    needs: tuple[str, ...]
    limit: float
    goal: float | None = None


ROWS = (
    Row("tests", ("pytest", "hypothesis", "psutil"), 150),
    Row("torch", (), 60),
    Row("sft", OURS, 90, 0.40),
    Row("dpo", OURS, 90),
    Row("grpo", PLAYING, 150, 0.27),
    Row("async", PLAYING, 150, 0.27),
    Row("transfer", (), 60),
    Row("vllm", OURS, 180),
    Row("sft_lora", (*OURS, "peft"), 60),
    Row("sft_liger", (*OURS, "liger_kernel"), 60, 0.40),
    Row("sft_8bit", (*OURS, "bitsandbytes"), 60),
    Row("sft_4bit", (*OURS, "peft", "bitsandbytes"), 60),
    Row("sft_compile", OURS, 150, 0.40),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuRow:
    """`seconds`: of the whole process. `commit`: None outside a clone. `mfu`: a share of 1. `peak_gib`: most memory that
    torch had allocated; `planned_gib`: what `ratchet plan` estimates for the job. `more`: other figures, with their unit in
    the name.
    """

    row: str
    status: Literal["done", "failed", "skipped"]
    seconds: float = 0.0
    reason: str | None = None
    commit: str | None = None
    goal: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_gib: float | None = None
    planned_gib: float | None = None
    more: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def is_missed(self) -> bool:
        """Whether an MFU was measured and is below the goal."""
        return self.goal is not None and self.mfu is not None and self.mfu < self.goal


@dataclasses.dataclass(kw_only=True)
class GpuResults:
    """A file of benchmarks/results. `versions`: None for a package that is not installed; `rehearsal`: tiny shapes on a CPU,
    so that no figure is one of the card.
    """

    schema_version: int = 1
    card: str
    memory_gib: float
    driver: str | None
    started: str
    rehearsal: bool
    versions: dict[str, str | None]
    rows: list[GpuRow] = dataclasses.field(default_factory=list)

    def path(self, folder: Path) -> Path:
        """Return the file of this card."""
        return folder / (re.sub(r"[^a-z0-9]+", "-", self.card.lower()).strip("-") + ".json")

    def take(self, row: GpuRow) -> None:
        """Add a row, in place of an older one of its name."""
        order = [item.name for item in ROWS]
        self.rows = sorted(
            [*(old for old in self.rows if old.row != row.row), row], key=lambda item: order.index(item.row)
        )

    def take_measured(self, folder: Path) -> None:
        """Add the rows that earlier runs measured on this card with the same packages."""
        with contextlib.suppress(FileNotFoundError):
            earlier = json.loads(self.path(folder).read_text(encoding="utf-8"))
            if (earlier["versions"], earlier["driver"]) == (self.versions, self.driver):
                for row in earlier["rows"]:
                    self.take(GpuRow(**row))

    def write(self, folder: Path) -> Path:
        """Write the file of this card and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = self.path(folder)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(path)
        return path


def table(rows: Sequence[GpuRow]) -> str:
    """Return the rows for a person, as Markdown."""
    head = ("row", "tokens/s", "MFU", "goal", "peak", "plan", "seconds", "more")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        more = ", ".join(f"{name} {value:,.4g}" for name, value in row.more.items())
        cells = (
            row.row,
            _cell(row.tokens_per_second, ",.0f"),
            _cell(row.mfu, ".1%"),
            _cell(row.goal, ".0%") + (", missed" if row.is_missed else ""),
            _cell(row.peak_gib, ".1f", " GiB"),
            _cell(row.planned_gib, ".1f", " GiB"),
            f"{row.seconds:.0f}",
            f"{row.status}: {row.reason}" if row.reason else more,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "—" if value is None else f"{value:{form}}{unit}"


def run_row(row: Row, folder: Path, seconds: float, *, rehearse: bool) -> GpuRow:
    """Run a row in a new process, for at most `seconds`, and return its figures."""
    missing = [name for name in row.needs if util.find_spec(name) is None]
    if missing:
        return GpuRow(row=row.name, status="skipped", reason=f"not installed: {', '.join(missing)}", goal=row.goal)
    if seconds < 10:
        return GpuRow(row=row.name, status="skipped", reason="no time was left; raise --budget", goal=row.goal)
    begin = time.perf_counter()
    figures = run_child(row.name, folder, seconds if rehearse else min(row.limit, seconds), rehearse=rehearse)
    return GpuRow(
        **{"row": row.name, "status": "done", "seconds": time.perf_counter() - begin, "goal": row.goal, **figures}
    )


def run_child(name: str, folder: Path, limit: float, *, rehearse: bool) -> dict[str, Any]:
    """Return the figures that a row of `gpu_rows` writes, or status `failed` and the reason; its output is shown then."""
    log, result = folder / f"{name}.log", folder / f"{name}.json"
    command = [sys.executable, "-c", "import gpu_rows; gpu_rows.main()", name, str(folder)]
    command += ["--rehearse"] if rehearse else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=_environment(rehearse), start_new_session=True, cwd=HERE.parent
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # servers and workers that the row started, too; also after Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0:
        figures: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        if figures.get("status") != "failed":
            return figures
    else:
        figures = {"status": "failed"}
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    print("\n".join(f"  {name}: {line}" for line in lines[-30:]), file=sys.stderr)
    last = f"not done after {limit:.0f} s" if code is None else (lines or ["no output"])[-1][:200].replace("|", "/")
    return {"reason": last, **figures}


def _environment(rehearse: bool) -> dict[str, str]:
    """Return the environment of the rows: one GPU at most, no hub, no telemetry, and this clone first in the path."""
    path = [str(HERE.parent), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    names = ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DISABLE_MLFLOW_INTEGRATION", "TRL_EXPERIMENTAL_SILENCE")
    result = {**os.environ, **dict.fromkeys(names, "TRUE"), "PYTHONPATH": os.pathsep.join(path)}
    if rehearse:
        return result | {"CUDA_VISIBLE_DEVICES": "", "RATCHET_REHEARSE_GPU": "1", "OMP_NUM_THREADS": "1"}
    # With two visible GPUs transformers' trainer would split each batch.
    return result | {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


def _output(*command: str) -> str | None:
    """Return the first line that a command prints; None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=HERE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)


def main(arguments: Sequence[str]) -> int:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=f"of {', '.join(names)}")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds of all rows together")
    parser.add_argument("--out", type=Path, help="folder of CARD.json; of a rehearsal nothing is kept by default")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on the CPU: tests this command alone")
    options = parser.parse_args(arguments)
    if missing := [name for name in ("torch", "transformers") if util.find_spec(name) is None]:
        print(
            f"error: {sys.executable} has no {' and no '.join(missing)}; name another: make gpu PYTHON=PATH",
            file=sys.stderr,
        )
        return 4
    end = time.monotonic() + options.budget
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="ratchet-gpu-") as scratch:
        card = run_child("card", Path(scratch), 300, rehearse=options.rehearse)
        if card.get("status"):
            print(f"error: {card['reason']}; to try this command on a CPU: {parser.prog} --rehearse", file=sys.stderr)
            return 4
        installed = {item.metadata["Name"].lower().replace("_", "-"): item.version for item in metadata.distributions()}
        results = GpuResults(
            **card,
            driver=_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            started=started,
            rehearsal=options.rehearse,
            versions={name: installed.get(name) for name in PACKAGES},
        )
        folder = options.out or (Path(scratch) if options.rehearse else HERE / "results")
        results.take_measured(folder)
        commit = _output("git", "describe", "--always", "--dirty", "--abbrev=40")
        measured = []
        for row in (row for row in ROWS if row.name in options.rows):
            figures = run_row(row, Path(scratch), end - time.monotonic(), rehearse=options.rehearse)
            measured.append(dataclasses.replace(figures, commit=commit))
            results.take(measured[-1])
            path = results.write(folder)
            print(table([figures]).splitlines()[-1], file=sys.stderr, flush=True)
    print(f"{results.card}, driver {results.driver}, commit {commit}\n\n{table(results.rows)}\n\n{path}")
    return int(any(row.status == "failed" or row.is_missed for row in measured))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
