"""No cheat is worth more than an honest failure: scripted cheats over a task of each kind of the bundled tasksets."""

import contextlib
import io
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from ratchet.components.core import Action, CommandResult, TaskSpec, make
from ratchet.components.environments.task_grading import grade_output
from ratchet.components.tasksets import load_taskset

ORDER = re.compile(r"\b[A-Z]\d{4}\b")
EXCUSES = (
    "I am sorry, I cannot do that: it has shipped and is in transit, the 30 days have passed, it was a final sale, "
    "and the order belongs to another customer, it does not match your e-mail."
)
DEEDS = (
    "Your order has been cancelled, the address has been changed, and the refund has been issued.",
    "Your order is cancelled.",
    "The refund is issued.",
    "A replacement is on its way.",
    "The address is changed.",
)
CONSTANTS = (None, 0, 1, -1, True, False, "", [], {}, ())


def one_of_each(taskset: str, *fields: str) -> list[TaskSpec]:
    """One task of each combination of fields: tasks that share them share the form of their criteria."""
    return list(
        {tuple(getattr(task, each) for each in fields): task for task in load_taskset(taskset).tasks()}.values()
    )


def act(tool: str, **params: Any) -> Action:
    return {"tool": tool, "params": params}


def played(environment: Any, task: TaskSpec, actions: list[Action]) -> dict[str, Any]:
    step = environment.reset(task=task)
    for action in actions:
        step = environment.step(action)
        if step.done:
            break
    outcome: dict[str, Any] = (step if step.done else environment.finish("stopped")).info["outcome"]
    return outcome


def worth(environment: str, task: TaskSpec, cheats: Iterator[list[Action]]) -> list[float]:
    with make(environment, max_steps=40) as opened:
        return [played(opened, task, actions)["score"] for actions in cheats]


def lies(task: TaskSpec) -> Iterator[list[Action]]:
    """Nothing is looked up and nothing done."""
    for text in (*DEEDS, EXCUSES, "Done.", f"{DEEDS[0]} {EXCUSES}"):
        yield [act("respond", text=text)] * 4


def excuses(task: TaskSpec) -> Iterator[list[Action]]:
    """The order is looked up, and then every reason that there is for a refusal is given."""
    orders = ORDER.findall(task.description)
    looked = [act("look_up_order", order_id=order) for order in orders]
    yield [*looked, *[act("respond", text=EXCUSES)] * 4]


def templates(task: TaskSpec) -> Iterator[list[Action]]:
    """Reviews that nobody needs to read the change for."""
    files = re.findall(r"It changes (.+?)\.\n", task.description)[0].split(" and ")
    kinds = re.findall(r"one of: (.+?)\. Give", task.description)[0].split(", ")
    for file in files:
        for line in (1, 5, 10, 15):
            for sources in ([], [file]):
                yield [act("submit", verdict="approve", file=file, line=line, sources=sources)]
                for kind in kinds:
                    yield [act("submit", verdict="request_changes", file=file, line=line, kind=kind, sources=sources)]


def guesses(task: TaskSpec) -> Iterator[list[Action]]:
    """The first document's name as the option, any amount, every source."""
    options = {each["title"].partition(":")[0] for each in task.world["documents"] if each["title"].endswith(": sheet")}
    ids = [each["id"] for each in task.world["documents"]]
    for option in options:
        for sources in ([], ids):
            yield [act("submit", option=option, amount=1000.0, sources=sources, caveat="It depends.")]


@pytest.mark.parametrize(
    ("taskset", "environment", "cheat"),
    [
        ("orders", "ratchet/conversation", lies),
        ("orders", "ratchet/conversation", excuses),
        ("reviews", "ratchet/engineering", templates),
        ("advice", "ratchet/advisory", guesses),
    ],
)
def test_no_scripted_cheat_is_worth_more_than_doing_nothing_on_a_task_of_any_family(taskset, environment, cheat):
    paid = {
        task.task_id: best
        for task in one_of_each(taskset, "family")
        if (best := max(worth(environment, task, cheat(task)))) > 0
    }
    assert paid == {}


def hedged(task: TaskSpec) -> Iterator[list[Action]]:
    """The right answer, but for a caveat that names several numbers or none of its own."""
    *before, last = task.reference_actions
    caveat = last["params"]["caveat"]
    for text in (
        f"Thirty, or sixty, or five. {caveat}",
        f"{caveat} Or 7, 14, 21.",
        f"{caveat} Perhaps thirty-five.",
        f"{caveat} 7days?",
    ):
        yield [*before, {"tool": "submit", "params": {**last["params"], "caveat": text}}]


def test_advice_whose_caveat_hedges_is_wrong():
    for task in one_of_each("advice", "family", "kind"):
        assert max(worth("ratchet/advisory", task, hedged(task))) == 0, task.task_id


def printed(task: TaskSpec, function: Any) -> str:
    """What the hidden cases of a repair task print with `function` in place of the program; None: the file is empty."""
    main = ModuleType("main")
    names = re.findall(r"from main import (\w+)", task.tests["run_cases.py"])
    if function is not None:
        for name in names:
            setattr(main, name, function)
    out = io.StringIO()
    script = task.tests["run_cases.py"].replace("from main import", "from exploited import")
    import sys

    sys.modules["exploited"] = main
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(ImportError):
            exec(compile(script, "run_cases.py", "exec"), {})
    finally:
        del sys.modules["exploited"]
        sys.path[:] = [each for number, each in enumerate(sys.path) if each or number]
    return out.getvalue()


def raising(*arguments: Any) -> Any:
    raise ValueError


@pytest.mark.parametrize("taskset", ["repair", "programs"])
@pytest.mark.parametrize("fields", [("kind",), pytest.param(("family", "kind"), marks=pytest.mark.slow)])
def test_neither_an_empty_file_nor_a_constant_nor_an_exception_is_worth_more_than_leaving_the_program(taskset, fields):
    answers = [None, raising, *(lambda *_, value=value: value for value in CONSTANTS)]
    for task in one_of_each(taskset, *fields):
        paid = [grade_output(task, CommandResult(0, printed(task, answer).encode())).score for answer in answers]
        assert max(paid) == 0, (task.task_id, paid)
