"""Make a taskset of reasoning-gym's generators, for `ratchet/reasoning`.

The kind of a task is its generator. Tasks of one family have the same question but for its numbers: whoever can solve
one can solve all, so by default a family has one role. A generator with fewer than MIN_FAMILIES families (the question
of `gcd` is always the same) cannot be split that way: its tasks, whose questions all differ, are split one by one, and
the taskset says `split_by: instance`. The entry that the generator made is part of the task, so that the truth does not
depend on the installed version.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Role, TaskSpec
from ratchet.components.core.files import InvalidYaml, load_yaml
from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
from ratchet.components.environments.reasoning_environment import DOMAIN, GYM_VERIFIER
from ratchet.components.rewards.verifiable.gym_verifier import SUCCESS_SCORE, GymEntry

from .row_import import ImportResult, RefusedRow
from .taskset_files import TasksetHead, check_import_folder, write_taskset

GENERATOR = "ratchet tasks import reasoning-gym"
ROLE_SHARES = {Role.TRAIN: 0.7, Role.PROMOTE: 0.1, Role.AUDIT: 0.1, Role.RESERVE: 0.1}
MIN_FAMILIES = 60
"""About six in each of the small roles: a sign-flip test over fewer cannot reach p < .025."""
_NUMBER = re.compile(r"-?\d+(?:[.,/]\d+)*")


def read_generator_settings(generators: Sequence[str], settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each generator, from `GENERATOR.KEY=VALUE` (values in YAML). Raises ConfigurationError."""
    configs: dict[str, dict[str, Any]] = {generator: {} for generator in generators}
    for setting in settings:
        path, equals, value = setting.partition("=")
        generator, _, key = path.partition(".")
        if not equals or not key or generator not in configs or key in ("seed", "size"):
            raise ConfigurationError(
                f"--set {setting}: write GENERATOR.KEY=VALUE, of a generator that --generator names"
            )
        try:
            configs[generator][key] = load_yaml(value.encode())
        except InvalidYaml as error:
            raise ConfigurationError(f"--set {setting}: {error}") from error
    return configs


def import_generators(
    folder: Path, configs: Mapping[str, dict[str, Any]], *, size: int, seed: int, role: Role | None = None
) -> ImportResult:
    """Write a taskset with `size` tasks of each generator (settings by generator) to `folder`; return the tasks and
    the entries whose reference answer does not pass.

    `role` None: split by ROLE_SHARES. Raises ConfigurationError for an unknown generator, refused settings, and a folder
    with another taskset; DataError where no entry became a task.
    """
    check_import_folder(folder, GENERATOR)
    if not configs:
        raise ConfigurationError("no generator was named; give --generator NAME, once for each")
    name = folder.resolve().name
    tasks: list[TaskSpec] = []
    refused: list[RefusedRow] = []
    by_instance = False
    for generator, config in configs.items():
        entries, version = GYM_VERIFIER.generate(generator, config, seed, size)
        made = [_task(name, generator, config, number, entry, version) for number, entry in enumerate(entries)]
        right = [task for task in made if isinstance(task, TaskSpec)]
        refused += [row for row in made if isinstance(row, RefusedRow)]
        split_by: Literal["family", "instance"] = (
            "family" if len({task.family for task in right}) >= MIN_FAMILIES else "instance"
        )
        by_instance = by_instance or (role is None and split_by == "instance")
        tasks += assign_roles(right, seed, split_by) if role is None else with_role(right, role)
    if not tasks:
        raise DataError(f"none of {len(refused)} entries is a task: {refused[0].where}: {refused[0].why}")
    head = TasksetHead(
        name, "1", DOMAIN, {}, "ratchet/reasoning", "instance" if by_instance else "family",
        f"Tasks of reasoning-gym: {', '.join(configs)}.", GENERATOR, seed,
    )  # fmt: skip
    by_role = {a_role: [task for task in tasks if task.role == a_role] for a_role in Role}
    write_taskset(folder, head, {key: rows for key, rows in by_role.items() if rows}, _card(name, configs, tasks, head))
    return ImportResult(tuple(tasks), tuple(refused))


def _task(
    taskset: str, generator: str, config: dict[str, Any], number: int, entry: dict[str, Any], version: str
) -> TaskSpec | RefusedRow:
    answer = entry["answer"] if isinstance(entry["answer"], str) else entry.pop("reference", None)
    where = f"{generator}, entry {entry['metadata'].get('source_index', number)}"
    if answer is None:
        return RefusedRow(where, "the generator gives no right answer, so nothing proves that the task can be solved")
    gym = GymEntry(generator, config, entry)
    if GYM_VERIFIER.score(gym, answer) < SUCCESS_SCORE:
        return RefusedRow(where, "its own verifier does not accept its own answer")
    question = entry["question"].strip()
    structure = hashlib.sha256(_NUMBER.sub("#", question).encode()).hexdigest()[:10]
    return TaskSpec(
        task_id=f"{generator}/{hashlib.sha256(question.encode()).hexdigest()[:10]}",
        taskset=taskset,
        family=f"{generator}-{structure}",
        kind=generator,
        role=Role.TRAIN,
        domain=DOMAIN,
        description=question,
        reference={REFERENCE_REPLY_FILE: reference_reply(_thought(entry, answer), answer)},
        criteria={"gym": msgspec.to_builtins(gym)},
        metadata={"reasoning_gym": version},
    )


def reference_reply(thought: str, answer: str) -> str:
    """Return a reply in the tagged layout."""
    return f"<think>{thought}</think>\n<answer>{answer}</answer>"


def _thought(entry: dict[str, Any], answer: str) -> str:
    """Return a short thought for the reference: of a sum, its partial sums from the left."""
    expression = entry["metadata"].get("expression")
    terms = re.findall(r"([+-]?) ?(\d+)", expression) if isinstance(expression, str) else []
    if len(terms) < 3 or not re.fullmatch(r"[\d +-]+", expression or ""):
        return f"The answer is {' '.join(answer.split())}."
    total, steps = int(terms[0][0] + terms[0][1]), []
    for sign, number in terms[1:]:
        following = total + int(sign + number)
        steps.append(f"{total} {sign} {number} = {following}")
        total = following
    return "; ".join(steps)


def with_role(tasks: Iterable[TaskSpec], role: Role) -> list[TaskSpec]:
    """Return the tasks with this role."""
    return [msgspec.structs.replace(task, role=role) for task in tasks]


def assign_roles(tasks: Sequence[TaskSpec], seed: int, split_by: Literal["family", "instance"]) -> list[TaskSpec]:
    """Return the tasks with roles by ROLE_SHARES of whole families, or of single tasks. Each next one, in an order that
    depends on its name and the seed, goes to the role that lacks most of its share.
    """
    units: dict[str, list[TaskSpec]] = defaultdict(list)
    for task in tasks:
        units[task.family if split_by == "family" else task.task_id].append(task)
    assigned: list[TaskSpec] = []
    counts: Counter[Role] = Counter()
    for unit in sorted(units, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest()):
        # In numbers of families, and not of their tasks: they are what a test resamples.
        role = max(ROLE_SHARES, key=lambda role: ROLE_SHARES[role] - counts[role] / len(units))
        counts[role] += 1
        assigned += with_role(units[unit], role)
    return assigned


def _card(name: str, configs: Mapping[str, dict[str, Any]], tasks: Sequence[TaskSpec], head: TasksetHead) -> str:
    rows = []
    for generator, config in configs.items():
        own = [task for task in tasks if task.kind == generator]
        settings = ", ".join(f"{key}={value}" for key, value in config.items()) or "defaults"
        rows.append(f"| {generator} | {settings} | {len(own)} | {len({task.family for task in own})} |")
    return (
        f"# {name}\n\nTasks from [reasoning-gym](https://github.com/open-thought/reasoning-gym) (Apache 2.0), seed {head.seed}. "
        "The generator's own verifier grades an answer; success is a score of 1. A task's kind is its generator. Tasks of a family "
        f"have the same question with other numbers; split by {head.split_by}.\n\n"
        "| generator | settings | tasks | families |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
