"""Commands about tasksets: tasks list, show, validate."""

from collections import Counter
from typing import Annotated

import typer

from .terminal import emit, facts, note, say, table

tasks = typer.Typer(no_args_is_help=True, help="Tasksets: what there is to solve.")


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(tasks, name="tasks")


@tasks.command("list")
def list_tasks(
    taskset: Annotated[str, typer.Argument(help="A taskset's name or folder; without it, the tasksets.")] = "",
    role: Annotated[str, typer.Option(help="Only this role: train, promote, audit, reserve.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a row.")] = False,
) -> None:
    """The tasksets, or the tasks of one. Example: `ratchet tasks list repair --role promote`"""
    from components.environments.tasksets import known, load

    if taskset:
        rows = [
            {"task_id": task.task_id, "role": task.role.value, "kind": task.kind, "family": task.family}
            for task in load(taskset).tasks(role or None)
        ]
    else:
        rows = []
        for name in known():
            found = load(name)
            counts = Counter(task.role.value for task in found.tasks())
            roles = ", ".join(f"{each} {count}" for each, count in counts.items())
            rows.append(
                {
                    "taskset": name,
                    "version": found.version,
                    "tasks": roles,
                    "split_by": found.split_by,
                    "hash": found.hash,
                }
            )
    if as_json:
        for row in rows:
            emit(row)
    elif rows:
        table(list(rows[0]), [list(row.values()) for row in rows])


@tasks.command("show")
def show_task(
    taskset: Annotated[str, typer.Argument(help="A taskset's name or folder.")],
    task_id: Annotated[str, typer.Argument(help="The task's id.")],
    as_json: Annotated[bool, typer.Option("--json", help="The whole task as one JSON line.")] = False,
) -> None:
    """One task: what the agent is told and given, and what only the grader sees."""
    import difflib

    from components.environments.tasksets import load
    from components.protocol import ConfigurationError

    found = load(taskset).by_id
    if task_id not in found:
        close = difflib.get_close_matches(task_id, found, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"see `ratchet tasks list {taskset}`"
        raise ConfigurationError(f"taskset '{taskset}' has no task '{task_id}'; {hint}")
    task = found[task_id]
    if as_json:
        emit(task)
        return
    facts(
        {
            "task": task.task_id,
            "role": task.role.value,
            "kind": task.kind,
            "family": task.family,
            "hash": task.task_hash,
        }
    )
    say(f"\n{task.description}")
    for heading, files in (("file", task.files), ("hidden test", task.tests), ("reference", task.reference)):
        for path, text in files.items():
            say(f"\n--- {heading}: {path}\n{text.rstrip()}")
    if task.expected_output:
        say("\n--- hidden: expected output\n" + "\n".join(task.expected_output))


@tasks.command("validate")
def validate_taskset(
    taskset: Annotated[str, typer.Argument(help="A taskset's name or folder.")] = "repair",
    role: Annotated[str, typer.Option(help="Only this role.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Only so many tasks (0: all).")] = 0,
    backend: Annotated[str, typer.Option(help="The sandbox: auto, docker or local.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON line.")] = False,
) -> int:
    """Prove each task without a model: the faulty files fail, the reference passes, an empty answer fails.

    Exit code 3 where a task does not hold. Example: `ratchet tasks validate repair --role promote`
    """
    from flows.tasksets import validate

    report = validate(taskset, role=role or None, limit=limit or None, backend=backend)
    if as_json:
        emit(report)
    else:
        for problem in report["problems"][:20]:
            note(f"{problem['task_id']}: {problem['message']}")
        say(
            f"{report['tasks']} tasks, {len(report['problems'])} problems, {report['seconds']:.1f} s "
            f"in the {report['backend']} sandbox"
        )
    return 3 if report["problems"] else 0
