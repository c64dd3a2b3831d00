"""Training beside plain TRL, and formatting beside what is common: one run, one table of ratios.

    python benchmarks/training.py [--json] [--quick] [--rounds 3] [--only PART]

Judged are

- training_steps: tokens per second of SFT and GRPO, at least .97 of TRL's, from the same losses;
- training_tools: the tool phase of 16 attempts whose tools take 50 ms, at least 12 times as fast as TRL's, and the whole step, at
  least 80 % of the bound that this gives;
- training_format: a trajectory of 160 steps in a 200th of the original's 15.3 s, in linear time.

Exit code 1 where a bar is missed. Models have .7M parameters; benchmarks/gpu.py measures one of half a billion on a GPU.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BAR_SPEED, BAR_PHASE, BAR_BOUND = 0.97, 12.0, 0.8
PARTS = ("steps", "tools", "format")
JUDGED = (("sft", "ours"), ("grpo", "ours"))


def measure(parts: Sequence[str], *, quick: bool, rounds: int, threads: int) -> dict[str, Any]:
    """Every figure of those parts."""
    import training_format
    import training_steps
    import training_tools

    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "steps" in parts:
            steps = 6 if quick else 12
            figures["steps"] = training_steps.measure(
                folder, steps=steps, rounds=1 if quick else rounds, threads=threads
            )
        elif "tools" in parts:
            training_steps.prepare(folder)
        if "tools" in parts:
            figures["tools"] = training_tools.measure(folder, steps=4 if quick else 8, threads=threads)
        if "format" in parts:
            figures["format"] = training_format.measure(quick=quick)
    return figures


def table(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    import training_format

    lines: list[str] = []
    if "steps" in figures:
        lines += ["| method | side | tokens/s | of TRL's |", "|---|---|---|---|"]
        for method in ("sft", "dpo", "grpo"):
            for side, row in figures["steps"].get(method, {}).items():
                lines.append(f"| {method} | {side} | {row['tokens_per_second']:,.0f} | {row['of_trl']:.3f} |")
        lines.append("")
    if "tools" in figures:
        tools = figures["tools"]
        lines += ["| | tool phase | step |", "|---|---|---|"]
        for side in ("trl", "ours"):
            lines.append(f"| {side} | {1000 * tools[side]['phase']:,.1f} ms | {tools[side]['step']:.2f} s |")
        lines += [
            f"| times TRL's | {tools['phase_times']:.1f} | {tools['step_times']:.2f} |",
            "",
            f"The bound of a step with such a tool phase is {tools['bound_times']:.2f} times TRL's; {tools['of_bound']:.0%} of it.",
            "",
        ]
    if "format" in figures:
        lines.append(training_format.table(figures["format"]))
    return "\n".join(lines)


def missed(figures: dict[str, Any]) -> list[str]:
    """The bars that were missed, a line each."""
    import training_format

    lines = []
    for method, side in JUDGED if "steps" in figures else ():
        ratio = figures["steps"][method][side]["of_trl"]
        if ratio < BAR_SPEED:
            lines.append(f"{method}: {ratio:.3f} of TRL's tokens per second; the bar is {BAR_SPEED}")
    if "tools" in figures:
        if figures["tools"]["phase_times"] < BAR_PHASE:
            lines.append(
                f"the tool phase is {figures['tools']['phase_times']:.1f} times as fast as TRL's; the bar is {BAR_PHASE:g}"
            )
        if figures["tools"]["of_bound"] < BAR_BOUND:
            lines.append(
                f"the step reaches {figures['tools']['of_bound']:.0%} of its bound; the bar is {BAR_BOUND:.0%}"
            )
    return lines + (training_format.misses(figures["format"]) if "format" in figures else [])


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="few steps, once: figures that are not to be judged")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, of which the fastest step counts")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parts = (options.only,) if options.only else PARTS
    with contextlib.redirect_stdout(sys.stderr):  # trainers print as they go
        figures = measure(parts, quick=options.quick, rounds=options.rounds, threads=options.threads)
    lines = missed(figures)
    print(json.dumps({**figures, "missed": lines}, indent=2) if options.json else table(figures))
    for line in lines:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
