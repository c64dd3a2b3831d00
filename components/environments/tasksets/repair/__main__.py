"""`python -m components.environments.tasksets.repair --seed 0 --out data/tasksets/repair`: write the taskset."""

import argparse
from pathlib import Path

from .card import card
from .files import write_taskset
from .generate import generate


def main() -> None:
    """Generate, and write the rows, taskset.yaml and the card."""
    parser = argparse.ArgumentParser(prog="python -m components.environments.tasksets.repair", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other instances of the same programs")
    parser.add_argument("--out", type=Path, default=Path("data/tasksets/repair"), help="the folder to write")
    arguments = parser.parse_args()
    tasks = generate(arguments.seed)
    write_taskset(arguments.out, tasks, seed=arguments.seed, readme=card(tasks, seed=arguments.seed))
    print(f"{arguments.out}: {sum(map(len, tasks.values()))} tasks")


if __name__ == "__main__":
    main()
