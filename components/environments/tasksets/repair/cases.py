"""The hidden cases of a task: inputs that tell the correct program from its faults, and what it answers to them."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

POOL = 64
FEWEST, MOST = 4, 6
LETTERS = "abcd"

Function = Callable[..., Any]
Case = tuple[Any, ...]


def draw(kind: str, rng: random.Random, edges: Sequence[int]) -> Any:
    """One argument of a type: number, large, few, some, small, divisor, numbers, words, text, bit, letter.

    `edges` are values at which the program may change its mind; numbers fall on them often.
    """
    if kind in ("number", "numbers"):
        return _number(rng, edges) if kind == "number" else [_number(rng, edges) for _ in range(rng.randint(2, 5))]
    if kind in _RANGES:
        return rng.randint(*_RANGES[kind])
    if kind == "words":
        return [_text(rng, 1, 5) for _ in range(rng.randint(2, 4))]
    return _text(rng, *_LENGTHS[kind])


_RANGES = {"few": (0, 9), "some": (2, 14), "small": (1, 4), "divisor": (2, 12), "large": (100, 999)}
_LENGTHS = {"text": (2, 6), "bit": (1, 2), "letter": (1, 1)}


def _number(rng: random.Random, edges: Sequence[int]) -> int:
    return rng.choice(edges) if edges and rng.random() < 0.6 else rng.randint(0, 120)


def _text(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(shortest, longest)))


def function(source: str, name: str) -> Function:
    """The function of that name in a source."""
    space: dict[str, Any] = {}
    exec(compile(source, "main.py", "exec"), space)  # our own library's programs, never an agent's
    found: Function = space[name]
    return found


def answer(call: Function, case: Case) -> str:
    """The line that the hidden script prints for one case: the result as Python writes it, or the exception's name."""
    try:
        return repr(call(*case))
    except Exception as error:
        return type(error).__name__


def choose(
    inputs: Sequence[str],
    edges: Sequence[int],
    right: Function,
    fault: Function,
    others: Sequence[Function],
    rng: random.Random,
) -> tuple[list[Case], list[str]] | None:
    """4 to 6 cases with the right answers: at least one shows the fault, and together they show as many others as they can.

    Where all of these have one answer, a case with another one joins them: a constant must not pass. None where the fault shows
    in none of the inputs drawn.
    """
    pool = _pool(inputs, edges, right, rng)
    expected = [answer(right, case) for case in pool]
    shown = [{at for at, case in enumerate(pool) if answer(one, case) != expected[at]} for one in (fault, *others)]
    if not shown[0]:
        return None
    places = shown[0]
    picked: list[int] = []
    missing = [each for each in shown[1:] if each]
    while len(picked) < MOST and places:
        best = max(sorted(places), key=lambda at: sum(at in each for each in missing))
        picked.append(best)
        missing = [each for each in missing if best not in each]
        places = set().union(*missing)
    spare = [*sorted(shown[0]), *range(len(pool))]
    for at in spare:
        if len(picked) < FEWEST and at not in picked:
            picked.append(at)
    if len({expected[at] for at in picked}) == 1:
        pool, expected = [*pool, *_unlike(inputs, edges, right, expected[picked[0]])], list(expected)
        expected += [answer(right, case) for case in pool[len(expected) :]]
        picked += [at for at, line in enumerate(expected) if line != expected[picked[0]]][:1]
    picked.sort()
    return [pool[at] for at in picked], [expected[at] for at in picked]


def _pool(inputs: Sequence[str], edges: Sequence[int], right: Function, rng: random.Random) -> list[Case]:
    """Distinct inputs that the correct program answers without an exception."""
    pool: list[Case] = []
    for _ in range(10 * POOL):
        case = tuple(draw(kind, rng, edges) for kind in inputs)
        if case in pool:
            continue
        try:
            right(*case)
        except Exception:
            continue
        pool.append(case)
        if len(pool) == POOL:
            break
    return pool


def _unlike(inputs: Sequence[str], edges: Sequence[int], right: Function, line: str) -> list[Case]:
    """Return one case whose right answer is not `line`, or none. Its random generator is separate: other tasks stay unchanged."""
    rng = random.Random(f"{inputs} {edges} {line}")
    for _ in range(200 * POOL):
        case = tuple(draw(kind, rng, edges) for kind in inputs)
        with suppress(Exception):
            if repr(right(*case)) != line:
                return [case]
    return []
