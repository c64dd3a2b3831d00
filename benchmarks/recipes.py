"""Which recipe makes the better challenger? From one champion and one night's data: recipes, seeds, the same held-out tasks.

    python benchmarks/recipes.py [--night N] [--recipes sft dpo grpo expert-iteration] [--seeds 0 1 2] [--out FILE.json]

Run it in a COPY of a clone in which a night was played: sampled episodes and builds are added to its data. Started again after any
end it goes on where it stood. Each training has its curves in MLflow, in a run `bench-RECIPE-sSEED`.

A gain is the challenger's success less the champion's, paired by attempt; intervals and tests are clustered by task family, over
all seeds together. Exit code 1 where fewer than `--improved` (2) recipes gain significantly (one-sided, alpha .025).
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from components.environments.tasksets import load
from components.evaluation.comparison import Comparison, TaskPair, compare
from components.evaluation.statistics import difference_estimate, permutation_test
from components.protocol import ConfigurationError, Role
from flows.build import TrainingData
from flows.choice import draw
from flows.lock import only_night
from flows.recipe import load_recipe
from flows.scale import Scale, load_scale
from flows.stages import Made, as_flow, play_recipe
from flows.state import Night, begin, nights, open_night
from flows.tonight import Tonight
from tasks.collect import play
from tasks.display import Display
from tasks.evaluate import result_of
from tasks.home import folder
from tasks.registry import Model
from tasks.server import PrefectServer

ALPHA = 0.025
RECIPES = ("sft", "dpo", "grpo", "expert-iteration")


def source_night(name: str | None) -> tuple[Night, Model, TrainingData]:
    """A night that was played here (the last, where none is named), the champion that it began with, and its rows."""
    played = [night for night in nights() if "set aside data" in night.results and not night.id.startswith("bench-")]
    if name is None and not played:
        raise ConfigurationError("no night was played here; run `ratchet night` first, or change to a copy of a clone")
    night = open_night(name) if name else played[-1]
    champion = night.results.get("champion") or night.results["register cold-start"]
    return night, msgspec.convert(champion, Model), msgspec.convert(night.results["set aside data"], TrainingData)


class Bench:
    """All that is made and played, each in a night of its own that remembers what is done."""

    def __init__(self, scale: Scale, champion: Model, data: TrainingData) -> None:
        self.scale, self.champion, self.data = scale, champion, data

    def challenger(self, recipe: str, seed: int) -> Made:
        """What a recipe makes with a seed; each in a run of its own in MLflow."""
        from components.tracking.runs import night_run

        how = load_recipe(recipe, self.scale.size)
        night = begin(self.scale.name, seed, f"bench-{how.name}-s{seed}", recipe)
        told = {"scale": self.scale.name, "seed": seed, "recipe": recipe}
        with night_run(night.id, self.scale.taskset, params=told) as run:
            tonight = Tonight(night, self.scale, run, how)
            made: Made = night.once("made", lambda: play_recipe(tonight, self.champion, self.data), Made)
        night.finish()
        return made

    def evaluated(self, name: str, model: Model, seed: int) -> Any:
        """A model's result on the held-out tasks of a seed."""
        held_out = self.scale.evaluation
        tasks = draw(load(self.scale.taskset).tasks(Role.PROMOTE), held_out.promote, seed, Role.PROMOTE.value)
        plan = self.scale.plan(held_out, model.policy, Role.PROMOTE, tasks, seed)
        place = folder("evaluations", f"bench-s{seed}") / name
        play(f"evaluate {name} s{seed}", plan, place)
        return result_of(name, place)


def measured(bench: Bench, recipes: Sequence[str], seeds: Sequence[int], show: Callable[[str], None]) -> dict[str, Any]:
    """Every recipe and seed against the champion. What samples, and so builds anew, comes last: others read the night's build."""
    found: dict[str, list[Comparison]] = defaultdict(list)
    tokens: dict[str, list[int]] = defaultdict(list)
    for recipe in sorted(
        recipes, key=lambda name: any(not s.trains for s in load_recipe(name, bench.scale.size).stages)
    ):
        for seed in seeds:
            made = bench.challenger(recipe, seed)
            before = bench.evaluated("champion", bench.champion, seed)
            pair = compare(before, bench.evaluated(Path(recipe).stem, made.challenger, seed), seed=seed)
            found[recipe].append(pair)
            tokens[recipe].append(made.tokens)
            show(f"{recipe}, seed {seed}: {pair.success_a.value:.3f} -> {pair.success_b.value:.3f}")
    return {recipe: row(found[recipe], tokens[recipe]) for recipe in recipes}


def row(found: Sequence[Comparison], tokens: Sequence[int]) -> dict[str, Any]:
    """The figures of one recipe over its seeds; by kind of task too."""
    pairs = [pair for each in found for pair in each.pairs]
    kinds = sorted({pair.kind for pair in pairs})
    return {
        **gain(pairs),
        "seeds": [msgspec.to_builtins(each.difference.value) for each in found],
        "tokens": round(sum(tokens) / len(tokens)),
        "by_kind": {kind: gain([pair for pair in pairs if pair.kind == kind]) for kind in kinds},
    }


def gain(pairs: Sequence[TaskPair]) -> dict[str, Any]:
    """The mean gain with its interval and its p value; a family's tasks count as one draw, whatever the seed."""
    families = [pair.family for pair in pairs]
    before, after = [pair.a for pair in pairs], [pair.b for pair in pairs]
    estimate = difference_estimate([b - a for a, b in zip(before, after, strict=True)], families)
    interval = estimate.interval
    return {
        "before": sum(before) / len(before),
        "after": sum(after) / len(after),
        "gain": estimate.value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "p": permutation_test(before, after, clusters=families).p_value,
        "tasks": len(pairs),
        "families": len(set(families)),
    }


def table(rows: dict[str, Any]) -> str:
    """The figures as lines."""
    lines = [
        f"{'recipe':<18}{'champion':>9}{'after':>8}{'gain':>8}  {'95 % interval':<16}{'p':>8}  {'by seed':<24}{'tokens':>11}"
    ]
    for name, found in rows.items():
        seeds = " ".join(f"{100 * each:+.1f}" for each in found["seeds"])
        lines.append(_line(name, found) + f"  {seeds:<24}{found['tokens']:>11,}")
        lines += [_line(f"  {kind}", each) for kind, each in found["by_kind"].items()]
    return "\n".join(lines)


def _line(name: str, found: dict[str, Any]) -> str:
    low, high = found["low"], found["high"]
    interval = "none" if low is None else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    before, after, lead = (100 * found[key] for key in ("before", "after", "gain"))
    return f"{name:<18}{before:>8.1f}%{after:>7.1f}%{lead:>+8.1f}  {interval:<16}{found['p']:>8.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--night", help="whose champion and rows; default: the last that was played here")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--improved", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    from flows.run import farewell, quiet_logs

    night, champion, data = source_night(given.night)
    quiet_logs("recipes")
    server = PrefectServer().start()
    try:
        with Display() as display, only_night() as claim:
            claim("the benchmark of recipes")
            server.ready(on_wait=display.say)
            display.say(f"from {champion.policy_version} and the {data.rows} rows of {night.id}")
            bench = Bench(load_scale(given.scale), champion, data)
            rows = as_flow("recipes", lambda: measured(bench, given.recipes, given.seeds, display.say))
    finally:
        farewell()
        server.stop()
    print(table(rows))
    if given.out:
        given.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    better = [name for name, found in rows.items() if found["p"] < ALPHA and found["gain"] > 0]
    print(f"significantly better than the champion: {', '.join(better) or 'none'}")
    return int(len(better) < given.improved)


if __name__ == "__main__":
    sys.exit(main())
