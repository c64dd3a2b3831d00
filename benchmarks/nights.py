"""Several nights in a row: how success on promote and audit tasks moves, and what was promoted.

    python benchmarks/nights.py [--nights 10] [--scale smoke] [--recipe R] [--seed N] [--plot FILE.png]

Runs `ratchet night` in this clone until it holds that many finished nights, and prints a row for each: nights that it holds
already are not played again, and an interrupted one goes on. Night i has seed N + i. About ten minutes a night on two idle cores.
`--plot` draws success of the agents on audit tasks, with intervals of 95 % over families. Exit code 1 where a night failed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ratchet.components.evaluation.promotion.decision_record import Contender, Decision
from ratchet.components.nights.night_state import list_nights, night_decision
from ratchet.components.statistics.result_types import percent

AGENTS = ("champion", "control", "challenger")


class DecidedNight(NamedTuple):
    """A finished night: its decision, and the minutes from its first start to its end."""

    decision: Decision
    minutes: float

    def agent(self, name: str, audit: bool) -> Contender | None:
        """Return an agent on the audit or on the promote tasks; None if it did not play them."""
        part = self.decision.audit if audit else self.decision
        agent: Contender | None = getattr(part, name, None)
        return agent


def decided_nights() -> list[DecidedNight]:
    """Return the finished nights of this clone, in order."""
    decided = []
    for night in list_nights():
        decision = night_decision(night)
        if night.ended is not None and decision is not None:
            duration = datetime.fromisoformat(night.ended) - datetime.fromisoformat(night.begun)
            decided.append(DecidedNight(decision, duration.total_seconds() / 60))
    return decided


def table(nights: Sequence[DecidedNight]) -> str:
    """Return the nights as a Markdown table."""
    head = ("night", *AGENTS, *(f"{name}, audit" for name in AGENTS), "p", "p, audit", "verdict", "minutes")
    rows = [head, ["---"] * len(head)]
    for number, night in enumerate(nights, 1):
        agents = [night.agent(name, audit) for audit in (False, True) for name in AGENTS]
        rates = [percent(agent.success.value) if agent else "" for agent in agents]
        decision = night.decision
        p_values = [f"{part.versus_champion.p_value:.4f}" if part else "" for part in (decision, decision.audit)]
        rows.append([str(number), *rates, *p_values, decision.verdict, f"{night.minutes:.0f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(nights: Sequence[DecidedNight], path: Path) -> None:
    """Draw success on audit tasks by night, one line an agent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    for name, offset in zip(AGENTS, (-0.08, 0.0, 0.08), strict=True):
        points = []
        for number, night in enumerate(nights, 1):
            agent = night.agent(name, audit=True)
            if agent is not None and agent.success.value is not None and agent.success.interval is not None:
                rate, interval = agent.success.value, agent.success.interval
                points.append((number + offset, 100 * rate, 100 * (rate - interval.low), 100 * (interval.high - rate)))
        at, rates, below, above = zip(*points, strict=True) if points else ((),) * 4
        axes.errorbar(at, rates, (below, above), marker="o", capsize=2, label=name)
    axes.set(xlabel="night", ylabel="success on audit families, %", ylim=(0, 100), xticks=range(1, len(nights) + 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the missing nights and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nights", type=int, default=10, help="finished nights that the clone should hold (default 10)"
    )
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--recipe", help="default: the scale's own")
    parser.add_argument("--seed", type=int, default=0, help="of the first night (default 0)")
    parser.add_argument("--plot", type=Path, help="file of a picture")
    options = parser.parse_args(arguments)
    while (finished := len(decided_nights())) < options.nights:
        command = ["ratchet", "night", "--scale", options.scale, "--seed", str(options.seed + finished)]
        night = subprocess.run([*command, *(["--recipe", options.recipe] if options.recipe else [])], check=False)
        if night.returncode:
            return 1
    nights = decided_nights()
    print(
        f"{len(nights)} nights, {sum(night.decision.verdict == 'promote' for night in nights)} promoted a challenger\n"
    )
    print(table(nights))
    if options.plot and nights:
        plot(nights, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
