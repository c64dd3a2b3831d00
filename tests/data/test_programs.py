"""What the taskset `programs` promises, checked on the committed data and on the grammar behind it."""

import ast
import json
import random
import re
import subprocess
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from data.generators.programs import base_model
from data.generators.programs.generate import draw_role, generate, write_task
from data.generators.programs.grammar import KINDS, draw_program, family_role, fill
from data.generators.repair.generate import load_function
from ratchet.components.core import PolicyRequest, Role, TaskSpec
from ratchet.components.models.checkpoint_folders import checkpoint_version
from ratchet.components.models.scripted_policies import Rewriter
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.tasksets import Taskset, load_taskset

NAMES = {"F": "f", "A": "a", "B": "b", "C": "c", "X": "x", "Y": "y"}
SLOTS = {**NAMES, "K": "11", "M": "22", "N": "44", "W": "33"}
COMMITTED = Path(__file__).parents[2] / "data" / "tasksets" / "programs"


class Normaliser(ast.NodeTransformer):
    """Renames bound names in order of appearance and replaces constants by their type."""

    def __init__(self, bound: dict[str, str]) -> None:
        self.bound = bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename a variable; builtins keep their names."""
        return ast.Name(self.bound.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Rename a parameter."""
        return ast.arg(self.bound[node.arg])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rename a function."""
        self.generic_visit(node)
        node.name = self.bound[node.name]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replace a constant by the name of its type."""
        return ast.Constant(type(node.value).__name__)


def normal_form(source: str) -> str:
    """The source with bound names and constants normalised; equal for two sources of one family."""
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            continue
        bound.setdefault(name, f"v{len(bound)}")
    return ast.dump(Normaliser(bound).visit(tree))


@pytest.fixture(scope="module")
def tasks() -> list[TaskSpec]:
    return load_taskset(COMMITTED).tasks()


def source(program) -> str:
    return fill("\n".join(program.lines), SLOTS) + "\n"


def printed(task: TaskSpec, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the hidden script prints for a file: run here, with the file in the place of its import."""
    script = task.tests["run_cases.py"]
    body = script[script.index("for case in") :]
    capsys.readouterr()
    space: dict[str, object] = {}
    exec(text, space)
    exec(body, space)
    return capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def programs():
    rng = random.Random(0)
    return [draw_program(size, rng) for size in (3, 4, 5) for _ in range(100)]


def body_form(text: str) -> str:
    """The normal form of the body alone: a family does not fix the order of the arguments."""
    tree = ast.parse(text).body[0]
    order = list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))
    order = sorted(order, key=lambda name: re.search(rf"\b{name}\b", text.partition(":")[2]).start())
    names = {name: f"v{index}" for index, name in enumerate(name for name in order if name not in ("max", "min"))}
    text = re.sub(r"\b\d\d\b", "11", text.partition(":\n")[2])
    return re.sub(r"[a-z]+", lambda word: names.get(word[0], word[0]), text)


def test_a_family_is_a_syntax_tree_and_there_are_two_thousand_of_them(tasks: list[TaskSpec]) -> None:
    forms = {(task.family, body_form(task.reference["main.py"])) for task in tasks}
    families = {task.family for task in tasks}
    assert len(forms) == len(families) == len({form for _, form in forms})
    assert len({task.family for task in tasks if task.role == Role.TRAIN}) >= 2000


def test_the_normal_form_sees_through_names_and_constants_but_not_through_structure() -> None:
    one = "def f(a, b):\n    t = a * 11\n    return max(t, b)\n"
    same = "def g(x, y):\n    u = x * 97\n    return max(u, y)\n"
    assert normal_form(one) == normal_form(same)
    assert normal_form(one) != normal_form(same.replace("*", "+"))
    assert normal_form(one) != normal_form(same.replace("max", "min"))
    assert normal_form(one) != normal_form(same.replace("max(u, y)", "max(y, u)"))


def test_every_value_that_is_assigned_is_used_and_every_kind_of_fault_occurs(programs) -> None:
    assert {fault.kind for program in programs for fault in program.faults} == set(KINDS)
    for program in programs:
        text = "\n".join(program.lines)
        assert all(len(re.findall(rf"\b{slot}\b", text)) >= 2 for slot in program.slots if slot in "ABCXY")
        assert len(program.lines) <= 10 and 3 <= len(program.statements) <= 5
        load_function(source(program), "f")


def test_texts_stay_short_enough_for_a_small_model(tasks: list[TaskSpec]) -> None:
    assert max(len(task.reference["main.py"]) for task in tasks) <= 320
    assert max(len(task.description) for task in tasks) <= 400


def test_the_roles_have_the_promised_sizes_and_are_spread_evenly(tasks: list[TaskSpec]) -> None:
    sizes = Counter(task.role for task in tasks)
    assert tuple(sizes[role] for role in (Role.TRAIN, Role.PROMOTE, Role.AUDIT, Role.RESERVE)) == (4000, 400, 300, 200)
    for role in Role:
        of_role = [task for task in tasks if task.role == role]
        kinds, statements = (
            Counter(task.kind for task in of_role),
            Counter(task.metadata["statements"] for task in of_role),
        )
        assert set(kinds) == set(KINDS) and set(statements) == {3, 4, 5}
        assert max(kinds.values()) <= 1.2 * min(kinds.values())
        assert abs(statements[3] - len(of_role) / 5) <= 1 and abs(statements[4] - statements[5]) <= 1


def test_no_family_is_in_two_roles_and_outside_of_training_none_occurs_twice(tasks: list[TaskSpec]) -> None:
    assert all(family_role(task.family) is task.role for task in tasks)
    for role in (Role.PROMOTE, Role.AUDIT, Role.RESERVE):
        families = [task.family for task in tasks if task.role == role]
        assert len(set(families)) == len(families)


def test_the_same_seed_gives_the_committed_tasks_and_another_one_other_tasks_of_the_same_roles(tasks) -> None:
    few = generate(0, {Role.TRAIN: 6})[Role.TRAIN]
    assert [task.description for task in few] != [task.description for task in generate(1, {Role.TRAIN: 6})[Role.TRAIN]]
    assert [task.files for task in generate(0, {Role.TRAIN: 6})[Role.TRAIN]] == [task.files for task in few]
    assert all(family_role(task.family) is Role.TRAIN for task in generate(7, {Role.TRAIN: 12})[Role.TRAIN])


def test_the_base_model_is_small_and_the_one_that_the_smoke_scale_names() -> None:
    model = load_scale("smoke").cold_start.model
    folder = COMMITTED.parents[2] / str(model.base)
    assert checkpoint_version(folder) == model.revision
    assert f"`{model.revision}`" in (folder / "README.md").read_text()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2_000_000


def test_the_base_model_learns_what_the_rewriter_does_at_train_families_alone(tasks: list[TaskSpec]) -> None:
    drawn = draw_role(
        Role.TRAIN,
        40,
        base_model.SEED,
        set(),
        base_model.STATEMENTS,
        lambda *drawing: (base_model.teacher_row(*drawing), write_task(*drawing)),
    )
    pairs = [(json.loads(row)["messages"], task) for row, task in drawn if task is not None]
    assert len(pairs) > 20 and all(family_role(task.family) is Role.TRAIN for _, task in pairs)
    assert Counter(task.metadata["statements"] for _, task in pairs)[5] <= 2
    policy = Rewriter(Taskset(load_taskset(COMMITTED).head, tuple(task for _, task in pairs)))
    for messages, task in pairs:
        assert messages[0] == {"role": "user", "content": task.description}
        assert messages[2]["content"] == task.files["main.py"]
        for turn, at in enumerate(at for at, message in enumerate(messages) if message["role"] == "assistant"):
            (reply,) = policy.act([PolicyRequest("ep", task.task_id, turn, 0, tuple(messages[:at]), ())])
            function = messages[at]["tool_calls"][0]["function"]
            assert [(call.tool, call.arguments) for call in reply.calls] == [(function["name"], function["arguments"])]


def slots_of(task: TaskSpec) -> dict[str, str]:
    """Each name and constant of a task's sentence and file with a slot, by first appearance after the signature."""
    sentence, text = task.description.partition(":")[2], task.files["main.py"]
    assigned = re.findall(r"(\w+) = ", text)
    words = re.findall(r"\w+", sentence + " " + text.partition(":")[2])
    arguments = re.search(r"\((.*?)\)", text)[1].split(", ")
    known = [word for word in dict.fromkeys(words) if word in assigned or word in arguments or word.isdigit()]
    return {word: f"slot{index}" for index, word in enumerate(known)}


@pytest.mark.slow
def test_the_fix_of_the_nearest_train_program_solves_at_most_a_tenth_of_audit(tasks: list[TaskSpec]) -> None:
    """Nearest by the 3-grams of sentence and file, names and constants normalised; its right line replaces that line."""

    def normal(task: TaskSpec, text: str) -> str:
        slots = slots_of(task)
        return re.sub(r"\w+", lambda word: slots.get(word[0], word[0]), text)

    def grams(task: TaskSpec) -> set[tuple[str, ...]]:
        text = normal(task, task.description.partition(":")[2] + "\n" + task.files["main.py"].partition("\n")[2])
        words = re.findall(r"\w+|[^\w ]+", text)
        return set(zip(words, words[1:], words[2:], strict=False))

    known = [(task, grams(task)) for task in tasks if task.role == Role.TRAIN]
    solved = 0
    audit = [task for task in tasks if task.role == Role.AUDIT]
    for task in audit:
        own = grams(task)
        nearest = max(known, key=lambda each: len(own & each[1]) / len(own | each[1]))[0]
        line = nearest.metadata["line"] - 1
        text = normal(task, task.files["main.py"]).splitlines()
        if line < len(text):
            text[line] = normal(nearest, nearest.reference["main.py"]).splitlines()[line]
        solved += text == normal(task, task.reference["main.py"]).splitlines()
    assert solved / len(audit) <= 0.1, f"{solved} of {len(audit)}"
    print(f"{solved} of {len(audit)}")


def test_no_instance_occurs_twice_and_no_signature_of_train_occurs_elsewhere(tasks: list[TaskSpec]) -> None:
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert len({task.files["main.py"] for task in tasks}) == len(tasks)
    assert len({task.reference["main.py"] for task in tasks}) == len(tasks)
    signatures = [task.description.partition(":")[0] for task in tasks]
    assert len(set(signatures)) == len(tasks)


def test_one_line_differs_from_the_reference_and_it_stands_once_in_the_file(tasks: list[TaskSpec]) -> None:
    for task in tasks:
        faulty, right = task.files["main.py"].splitlines(), task.reference["main.py"].splitlines()
        different = [number for number, pair in enumerate(zip(faulty, right, strict=True), 1) if pair[0] != pair[1]]
        assert different == [task.metadata["line"]], task.task_id
        assert task.files["main.py"].count(faulty[different[0] - 1].strip()) == 1, task.task_id


@pytest.mark.slow
def test_the_hidden_cases_tell_the_faulty_file_from_the_reference(tasks: list[TaskSpec], capsys) -> None:
    for task in tasks:
        assert 4 <= len(task.expected_output) <= 6
        assert printed(task, task.reference["main.py"], capsys) == list(task.expected_output), task.task_id
        assert printed(task, task.files["main.py"], capsys) != list(task.expected_output), task.task_id


def test_neither_the_expected_output_nor_the_reference_stands_in_what_enters_the_sandbox(tasks: list[TaskSpec]) -> None:
    for task in tasks:
        script = task.tests["run_cases.py"]
        assert set(task.tests) == {"run_cases.py"}
        assert task.reference["main.py"].splitlines()[task.metadata["line"] - 1].strip() not in script
        assert "return" not in script


def test_the_sentence_names_every_argument_and_constant_of_the_repair(tasks: list[TaskSpec]) -> None:
    for task in tasks:
        said = task.description
        for word in task.reference["main.py"].replace("(", " ").replace(")", " ").replace(",", " ").split():
            if word.isdigit() and len(word) == 2:
                assert word in said, task.task_id


def test_faults_are_of_their_kind(programs) -> None:
    signs = {"wrong_operator": set("+-*/% maxin"), "wrong_comparison": set("<>=!")}
    for program in programs:
        for fault in program.faults:
            right = fill(program.lines[fault.line], SLOTS)
            wrong = fill(fault.wrong, SLOTS)
            changes = [
                right[block[1] : block[2]] + wrong[block[3] : block[4]]
                for block in SequenceMatcher(a=right, b=wrong, autojunk=False).get_opcodes()
                if block[0] != "equal"
            ]
            assert changes
            if fault.kind in signs:
                assert set("".join(changes)) <= signs[fault.kind], (program.family, wrong)
            if fault.kind == "missing_return":
                assert right.replace("return ", "", 1) == wrong
            if fault.kind == "swapped_arguments":
                assert sorted(right) == sorted(wrong)
            if fault.kind in ("wrong_constant", "off_by_one"):
                assert wrong.replace("33", SLOTS[fault.instead]) == right


AUDIT_TASKS = load_taskset("programs").tasks(Role.AUDIT)
SAMPLE = [next(task for task in AUDIT_TASKS if task.kind == kind) for kind in ("missing_return", "wrong_comparison")]


def run(task: TaskSpec, folder: Path, content: str) -> tuple[int, list[str]]:
    (folder / "main.py").write_text(content)
    for name, text in task.tests.items():
        (folder / name).write_text(text)
    done = subprocess.run(task.test_command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.kind)
def test_the_command_tells_the_reference_from_the_faulty_and_the_empty_file(task: TaskSpec, tmp_path: Path) -> None:
    assert run(task, tmp_path, task.reference["main.py"]) == (0, list(task.expected_output))
    assert run(task, tmp_path, task.files["main.py"])[1] != list(task.expected_output)
    assert run(task, tmp_path, "") == (1, [])
    assert not (tmp_path / "__pycache__").exists()
