"""A program of the library: a correct source with marked places, a sentence that says all it does, and its faults.

Slots, written as single capitals in source and sentence: F the function, A B C its arguments, K M two-digit constants.
A marked place is `{right|kind:wrong|wrong}`; `kind` is one of the prefixes in `KINDS` and holds until the next prefix.
Two kinds need no mark: every constant may be wrong, and every `return` of F may be missing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

KINDS = {
    "op": "wrong_operator",
    "one": "off_by_one",
    "const": "wrong_constant",
    "swap": "swapped_arguments",
    "cmp": "wrong_comparison",
    "ret": "missing_return",
}
MARK = re.compile(r"\{([^{}]*)\}")
PREFIX = re.compile(r"(op|one|swap|cmp):")
SLOT = re.compile(r"\b[ABCFKMW]\b")
CONSTANT = re.compile(r"\b[KM]\b")


@dataclass(frozen=True)
class Fault:
    """One line gone wrong: its kind, its number (from 0), and the line as a template. Slot W is a wrong constant for `instead`."""

    kind: str
    line: int
    wrong: str
    instead: str = ""


@dataclass(frozen=True)
class Program:
    """`inputs` names the type of each argument (see cases.py); `ordered` asks for K < M; `audit` keeps it out of train."""

    name: str
    inputs: tuple[str, ...]
    sentence: str
    marked: str
    ordered: bool = False
    audit: bool = False

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The correct source as template lines."""
        return tuple(_right(line) for line in self.marked.splitlines())

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """The constant slots, of K and M, that the program uses."""
        return tuple(sorted(set(CONSTANT.findall("\n".join(self.lines)))))

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault that the program can have, in the order of its lines."""
        found: list[Fault] = []
        start = next(number for number, line in enumerate(self.lines) if line.startswith("def F("))
        for number, line in enumerate(self.marked.splitlines()):
            found += _marked_faults(number, line)
            right = self.lines[number]
            found += [
                Fault(KINDS["const"], number, right[: slot.start()] + "W" + right[slot.end() :], slot.group())
                for slot in CONSTANT.finditer(right)
            ]
            if number > start and right.lstrip().startswith("return "):
                found.append(Fault(KINDS["ret"], number, right.replace("return ", "", 1)))
        return tuple(fault for fault in found if self._findable(fault))

    def broken(self, fault: Fault) -> list[str]:
        """The source as template lines with this fault in it."""
        lines = list(self.lines)
        lines[fault.line] = fault.wrong
        return lines

    def _findable(self, fault: Fault) -> bool:
        """True where the faulty line, without its indentation, stands once in the faulty file."""
        return "\n".join(self.broken(fault)).count(fault.wrong.strip()) == 1


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its slots replaced. Raises KeyError for a slot without a value."""
    return SLOT.sub(lambda slot: values[slot.group()], template)


def _right(line: str) -> str:
    return MARK.sub(lambda mark: mark.group(1).split("|")[0], line)


def _marked_faults(number: int, line: str) -> list[Fault]:
    faults = []
    for mark in MARK.finditer(line):
        kind = ""
        for wrong in mark.group(1).split("|")[1:]:
            prefix = PREFIX.match(wrong)
            if prefix:
                kind, wrong = prefix.group(1), wrong[prefix.end() :]
            broken = _right(line[: mark.start()]) + wrong + _right(line[mark.end() :])
            faults.append(Fault(KINDS[kind], number, broken))
    return faults
