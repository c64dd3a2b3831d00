"""The taskset `repair`: small programs with one planted fault, spread evenly over programs and kinds of fault.

An instance of a program has random names, constants and one fault, and hidden cases that reveal the fault. Every random
draw decides the bytes of the committed tasks: another order of draws gives other tasks.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from data.generators.generator_files import TasksByRole, count_table, role_table
from ratchet.components.core import DataError, Role, TaskSpec

from .programs import AUDIT, KINDS, KNOWN, PlantedFault, Program, fill

POOL_SIZE = 64
MIN_CASES, MAX_CASES = 4, 6
LETTERS = "abcd"

Function = Callable[..., Any]
Case = tuple[Any, ...]


def draw_argument(kind: str, rng: random.Random, boundary_values: Sequence[int]) -> Any:
    """Draw an argument of a kind: number, numbers, words, or a key of _RANGES or _LENGTHS.

    `boundary_values`: numbers at which the program may branch; often one of them is drawn.
    """
    if kind in ("number", "numbers"):
        return (
            _number(rng, boundary_values)
            if kind == "number"
            else [_number(rng, boundary_values) for _ in range(rng.randint(2, 5))]
        )
    if kind in _RANGES:
        return rng.randint(*_RANGES[kind])
    if kind == "words":
        return [_text(rng, 1, 5) for _ in range(rng.randint(2, 4))]
    return _text(rng, *_LENGTHS[kind])


_RANGES = {"few": (0, 9), "some": (2, 14), "small": (1, 4), "divisor": (2, 12), "large": (100, 999)}
_LENGTHS = {"text": (2, 6), "bit": (1, 2), "letter": (1, 1)}


def _number(rng: random.Random, boundary_values: Sequence[int]) -> int:
    return rng.choice(boundary_values) if boundary_values and rng.random() < 0.6 else rng.randint(0, 120)


def _text(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(shortest, longest)))


def load_function(source: str, name: str) -> Function:
    """Execute the source code of a program and return its function `name`."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "main.py", "exec"), namespace)  # our own library's programs, never an agent's
    function: Function = namespace[name]
    return function


def call_result(call: Function, case: Case) -> str:
    """Return the line that the hidden script prints for a case: the result's repr, or the exception's name."""
    try:
        return repr(call(*case))
    except Exception as error:
        return type(error).__name__


def choose_cases(
    inputs: Sequence[str],
    boundary_values: Sequence[int],
    right: Function,
    fault: Function,
    other_faulty: Sequence[Function],
    rng: random.Random,
) -> tuple[list[Case], list[str]] | None:
    """Return MIN_CASES to MAX_CASES cases and their right answers; None if no drawn input reveals the fault, or if all
    drawn inputs have one answer.

    The first chosen case reveals the fault; the others, greedily, as many of the other faults as possible.
    """
    pool = _pool(inputs, boundary_values, right, rng)
    expected = [call_result(right, case) for case in pool]
    revealing_cases = [
        {index for index, case in enumerate(pool) if call_result(one, case) != expected[index]}
        for one in (fault, *other_faulty)
    ]
    if not revealing_cases[0]:
        return None
    candidates = revealing_cases[0]
    chosen: list[int] = []
    undetected = [cases for cases in revealing_cases[1:] if cases]
    while len(chosen) < MAX_CASES and candidates:
        best = max(sorted(candidates), key=lambda index: sum(index in cases for cases in undetected))
        chosen.append(best)
        undetected = [cases for cases in undetected if best not in cases]
        candidates = set().union(*undetected)
    remaining_cases = [*sorted(revealing_cases[0]), *range(len(pool))]
    for index in remaining_cases:
        if len(chosen) < MIN_CASES and index not in chosen:
            chosen.append(index)
    # With equal answers a function that returns a constant would pass: a case with another answer is added.
    if len({expected[index] for index in chosen}) == 1:
        answer = expected[chosen[0]]
        if all(each == answer for each in expected):
            case = _case_with_another_answer(inputs, boundary_values, right, answer)
            if case is None:
                return None
            pool.append(case)
            expected.append(call_result(right, case))
        chosen.append(next(index for index, each in enumerate(expected) if each != answer))
    chosen.sort()
    return [pool[index] for index in chosen], [expected[index] for index in chosen]


def _pool(inputs: Sequence[str], boundary_values: Sequence[int], right: Function, rng: random.Random) -> list[Case]:
    """Return up to POOL_SIZE distinct inputs that the correct program answers without an exception."""
    pool: list[Case] = []
    for _ in range(10 * POOL_SIZE):
        case = tuple(draw_argument(kind, rng, boundary_values) for kind in inputs)
        if case in pool:
            continue
        try:
            right(*case)
        except Exception:
            continue
        pool.append(case)
        if len(pool) == POOL_SIZE:
            break
    return pool


def _case_with_another_answer(
    inputs: Sequence[str], boundary_values: Sequence[int], right: Function, answer: str
) -> Case | None:
    """Return a case whose right answer is not `answer`, or None if none is found."""
    # Its own generator: draws from that of the task would change all cases that are drawn after it.
    rng = random.Random(f"{inputs} {boundary_values} {answer}")
    for _ in range(200 * POOL_SIZE):
        case = tuple(draw_argument(kind, rng, boundary_values) for kind in inputs)
        with suppress(Exception):
            if repr(right(*case)) != answer:
                return case
    return None


VERBS = (
    *("adjust", "blend", "build", "check", "combine", "derive", "find", "form", "gauge", "get"),
    *("judge", "make", "measure", "merge", "plan", "rate", "scale", "shape", "sort", "weigh"),
)
NOUNS = (
    *("badge", "batch", "bonus", "budget", "cargo", "credit", "demand", "fleet", "grade", "label"),
    *("load", "margin", "order", "parcel", "profit", "quota", "salary", "signal", "ticket", "total"),
)
ARGUMENTS = (
    *("amount", "count", "depth", "extra", "height", "level"),
    *("limit", "offset", "price", "score", "size", "speed", "stock", "value", "weight", "width"),
)
FIRST, LAST = 10, 99
TEST_SCRIPT = """\
import sys
sys.path.insert(0, "")
from main import {name}
for case in {cases}:
    try:
        print(repr({name}(*case)), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@dataclass(frozen=True)
class RepairInstance:
    """A program with filled slots and one fault. `names` fill F, A, B, C; `constants` K and M; `wrong` the slot W."""

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
        arguments = ", ".join(self.values[slot] for slot in _slots(self.program))
        return f"{self.values['F']}({arguments}): {fill(self.program.sentence, self.values)}."


def _slots(program: Program) -> str:
    return "ABC"[: len(program.inputs)]


def draw_names(program: Program, rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Draw one of 400 function names, and a name for each argument."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    arguments = rng.sample(ARGUMENTS, len(program.inputs))
    return (("F", name), *zip(_slots(program), arguments, strict=True))


def draw_constants(program: Program, rng: random.Random) -> tuple[tuple[str, int], ...]:
    """Draw distinct two-digit constants, for an `ordered` program with K at least 5 below M."""
    while True:
        values = rng.sample(range(FIRST, LAST + 1), len(program.constants))
        if program.ordered and values[1] - values[0] < 5:
            continue
        return tuple(zip(program.constants, values, strict=True))


def draw_wrong_constant(constants: tuple[tuple[str, int], ...], rng: random.Random) -> int:
    """Draw a two-digit constant that differs from those of the program by at least 2."""
    free = [value for value in range(FIRST, LAST + 1) if all(abs(value - used) > 1 for _, used in constants)]
    return rng.choice(free)


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
        program.inputs,
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
        taskset="repair",
        family=program.name,
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
        metadata={"program": program.name, "line": fault.line + 1},
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
        "roles": role_table(tasks, "programs"),
        "kinds": count_table(tasks, "kind", KINDS.values()),
        "families": count_table(tasks, "family"),
        "example": example.task_id,
        "kind": example.kind,
        "description": example.description,
        "faulty": example.files["main.py"],
        "right": example.reference["main.py"],
    }


COUNTS = {Role.TRAIN: 2400, Role.PROMOTE: 200, Role.AUDIT: 72, Role.RESERVE: 200}
MAX_DRAWS = 2000


def generate(seed: int) -> dict[Role, list[TaskSpec]]:
    """Generate the tasks of all roles. The same seed gives the same tasks, byte for byte."""
    sampler = InstanceSampler(seed)
    return {role: sampler.tasks(role, AUDIT if role is Role.AUDIT else KNOWN) for role in COUNTS}


class InstanceSampler:
    """Draws instances without repetition: function and argument names are unique in the taskset, constants in a program."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: set[object] = set()
        self.constants: set[object] = set()

    def tasks(self, role: Role, programs: Sequence[Program]) -> list[TaskSpec]:
        """Return the tasks of one role, programs in random order."""
        rng = random.Random(f"{self.seed}/{role.value}")
        plan = list(_plan(programs, COUNTS[role], rng))
        rng.shuffle(plan)
        return [self._task(role, index, *pair) for index, pair in enumerate(plan, start=1)]

    def _task(self, role: Role, index: int, program: Program, fault: PlantedFault) -> TaskSpec:
        task_id = f"repair/{role.value}-{index:04d}"
        rng = random.Random(f"{self.seed}/{task_id}")
        for _ in range(MAX_DRAWS):
            names, constants = draw_names(program, rng), draw_constants(program, rng)
            if names in self.names or (constants and (program.name, constants) in self.constants):
                continue
            instance = RepairInstance(program, fault, names, constants, draw_wrong_constant(constants, rng))
            task = write_task(instance, task_id, role, rng)
            if task is None:
                continue
            self.names.add(names)
            self.constants.add((program.name, constants))
            return task
        raise DataError(
            f"program {program.name}: no new instance with {fault.kind} in {MAX_DRAWS} draws; change its inputs"
        )


def _plan(programs: Sequence[Program], count: int, rng: random.Random) -> Iterator[tuple[Program, PlantedFault]]:
    """Yield `count` pairs: programs in turn, each with its kind of fault that was planted least so far."""
    order = list(programs)
    rng.shuffle(order)
    per_kind: Counter[str] = Counter()
    per_program: Counter[tuple[str, str]] = Counter()
    used: Counter[PlantedFault] = Counter()
    for index in range(count):
        program = order[index % len(order)]
        kinds = sorted({fault.kind for fault in program.faults})
        rng.shuffle(kinds)
        kind = min(kinds, key=lambda candidate: per_kind[candidate] + 6 * per_program[program.name, candidate])
        choices = [fault for fault in program.faults if fault.kind == kind]
        rng.shuffle(choices)
        fault = min(choices, key=lambda candidate: used[candidate])
        per_kind[kind] += 1
        per_program[program.name, kind] += 1
        used[fault] += 1
        yield program, fault
