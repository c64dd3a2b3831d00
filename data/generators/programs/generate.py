"""The taskset `programs`: small programs of a grammar with one planted fault, spread evenly over sizes and kinds of fault.

An instance of a program has random names, constants and one fault, and hidden cases that reveal the fault. Every random
draw decides the bytes of the committed tasks: another order of draws gives other tasks.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from data.generators.generator_files import TasksByRole, count_table, role_table
from data.generators.repair.generate import (
    ARGUMENTS,
    FIRST,
    LAST,
    NOUNS,
    TEST_SCRIPT,
    VERBS,
    choose_cases,
    load_function,
)
from data.generators.repair.programs import PlantedFault
from ratchet.components.core import DataError, Role, TaskSpec

from .grammar import (
    CONSTANTS,
    KINDS,
    STATEMENTS,
    Program,
    draw_program,
    family_role,
    fill,
)

Written = TypeVar("Written")
LOCALS = ("base", "change", "factor", "part", "rest", "result", "share", "step")


@dataclass(frozen=True)
class RepairInstance:
    """A program with filled slots and one fault. `names` fill F and all variables; `constants` K, M, N; `wrong` W."""

    program: Program
    fault: PlantedFault
    names: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, int], ...]
    wrong: int

    @property
    def values(self) -> dict[str, str]:
        """The text of each slot."""
        numbers = {slot: str(value) for slot, value in self.constants}
        return dict(self.names) | numbers | {"W": str(self.wrong)}

    def text(self, lines: tuple[str, ...] | list[str]) -> str:
        """Return template lines as source code, with all slots filled."""
        return fill("\n".join(lines), self.values) + "\n"

    @property
    def description(self) -> str:
        """The task's description: the function's signature, and a sentence with everything that it does."""
        return f"{self.signature}: {fill(self.program.sentence, self.values)}."

    @property
    def signature(self) -> str:
        """Name and arguments of the function."""
        return f"{self.values['F']}({', '.join(self.values[slot] for slot in self.program.parameters)})"


InstanceWriter = Callable[[RepairInstance, str, Role, random.Random], Written | None]
"""What to make of an instance, its task id, its role and the task's random generator; None: draw another instance."""


def draw_names(program: Program, rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Draw one of 400 function names, and a name for each argument and local variable."""
    variables = [slot for slot in program.slots if slot not in CONSTANTS]
    parameters = rng.sample(ARGUMENTS, len(program.parameters))
    locals_ = rng.sample(LOCALS, len(variables) - len(parameters))
    return (("F", f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"), *zip(variables, (*parameters, *locals_), strict=True))


def draw_constants(program: Program, rng: random.Random) -> tuple[tuple[str, int], ...]:
    """Draw distinct two-digit constants."""
    return tuple(zip(program.constants, rng.sample(range(FIRST, LAST + 1), len(program.constants)), strict=True))


def draw_wrong_constant(fault: PlantedFault, constants: tuple[tuple[str, int], ...], rng: random.Random) -> int:
    """Draw the slot W of a fault: one beside the right constant for off_by_one, else any that is no constant."""
    if fault.kind == "off_by_one":
        return dict(constants)[fault.instead] + rng.choice((-1, 1))
    return rng.choice(
        [value for value in range(FIRST, LAST + 1) if all(abs(value - used) > 1 for _, used in constants)]
    )


def write_task(instance: RepairInstance, task_id: str, role: Role, rng: random.Random) -> TaskSpec | None:
    """Return an instance as a TaskSpec, or None if no drawn input reveals its fault."""
    program, fault, values = instance.program, instance.fault, instance.values
    right, broken = instance.text(program.lines), instance.text(program.broken(fault))
    name = values["F"]
    boundary_values = [value + step for _, value in instance.constants for step in (-1, 0, 1)]
    if fault.instead:
        boundary_values.append(instance.wrong)
    other_faulty = [
        text for other in program.faults for text in _faulty_sources(instance, other) if text not in (right, broken)
    ]
    selection = choose_cases(
        ["number"] * len(program.parameters),
        boundary_values,
        load_function(right, name),
        load_function(broken, name),
        [load_function(source, name) for source in other_faulty],
        rng,
    )
    if selection is None:
        return None
    cases, expected = selection
    return TaskSpec(
        task_id=task_id,
        taskset="programs",
        family=program.family,
        kind=fault.kind,
        role=role,
        domain="coding",
        description=instance.description,
        files={"main.py": broken},
        editable=("main.py",),
        tests={"run_cases.py": TEST_SCRIPT.format(name=name, cases=cases)},
        test_command="python3 -I -B -S run_cases.py",
        expected_output=tuple(expected),
        reference={"main.py": right},
        metadata={"statements": len(program.statements), "line": fault.line + 1},
    )


def _faulty_sources(instance: RepairInstance, fault: PlantedFault) -> list[str]:
    """Return the sources with a fault; for a wrong constant two of them, with the numbers next to the right one."""
    lines = instance.program.broken(fault)
    if not fault.instead:
        return [instance.text(lines)]
    value = dict(instance.constants)[fault.instead]
    return [replace(instance, wrong=value + step).text(lines) for step in (-1, 1)]


def card(tasks: TasksByRole) -> dict[str, str]:
    """Return the values of the card's template."""
    example = tasks[Role.TRAIN][0]
    return {
        "roles": role_table(tasks, "families"),
        "kinds": count_table(tasks, "kind", KINDS),
        "example": example.task_id,
        "kind": example.kind,
        "description": example.description,
        "faulty": example.files["main.py"],
        "right": example.reference["main.py"],
    }


COUNTS = {Role.TRAIN: 4000, Role.PROMOTE: 400, Role.AUDIT: 300, Role.RESERVE: 200}
MAX_DRAWS = 4000


def generate(seed: int, counts: dict[Role, int] = COUNTS) -> dict[Role, list[TaskSpec]]:
    """Generate the tasks of all roles. The same seed gives the same tasks, byte for byte.

    The role of a family depends on its hash alone: no two seeds put one family into two roles.
    """
    used: set[object] = set()
    return {role: draw_role(role, count, seed, used, STATEMENTS, write_task) for role, count in counts.items()}


def draw_role(
    role: Role,
    count: int,
    seed: int,
    used: set[object],
    sizes: tuple[int, ...],
    write: InstanceWriter[Written],
) -> list[Written]:
    """Return what `write` makes of the instances of one role, in random order: each kind of fault equally often, numbers
    of statements as in `sizes`.

    `used`: names and families that may not be drawn; those of the instances are added.
    """
    rng = random.Random(f"{seed}/{role.value}")
    plan = [(sizes[index % len(sizes)], KINDS[index // len(sizes) % len(KINDS)]) for index in range(count)]
    rng.shuffle(plan)
    return [_draw(role, index, *pair, seed, used, write) for index, pair in enumerate(plan, start=1)]


def _draw(
    role: Role,
    index: int,
    statements: int,
    kind: str,
    seed: int,
    used: set[object],
    write: InstanceWriter[Written],
) -> Written:
    """Return what `write` makes of one instance; its names are used in no other, and its family in no other outside of training."""
    task_id = f"programs/{role.value}-{index:04d}"
    rng = random.Random(f"{seed}/{task_id}")
    for _ in range(MAX_DRAWS):
        program = draw_program(statements, rng)
        faults = [fault for fault in program.faults if fault.kind == kind]
        if family_role(program.family) is not role or not faults:
            continue
        fault, names, constants = rng.choice(faults), draw_names(program, rng), draw_constants(program, rng)
        instance = RepairInstance(program, fault, names, constants, draw_wrong_constant(fault, constants, rng))
        if instance.signature in used or (role is not Role.TRAIN and program.family in used):
            continue
        written = write(instance, task_id, role, rng)
        if written is not None:
            used.update((instance.signature, program.family))
            return written
    raise DataError(f"{task_id}: no program of {statements} statements with {kind} in {MAX_DRAWS} draws")
