"""Commands on tasksets: tasks list, show, validate, new, import, export, serve, faults, schema."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, DataError, Role
from ratchet.render.terminal import print_fields, print_json, print_note, print_table, print_text

if TYPE_CHECKING:
    from ratchet.components.core import TaskSpec
    from ratchet.components.tasksets.row_import import ImportResult

LanguageFilter = Annotated[str, Option(help="Only tasks of this language: python, go, ...")]
DifficultyFilter = Annotated[str, Option(help="Only tasks of this difficulty, as the taskset names it.")]
KindFilter = Annotated[str, Option(help="Only tasks of this kind.")]
LimitFilter = Annotated[int, Option(min=0, help="Maximum number of tasks (0: all).")]
tasks = typer.Typer(no_args_is_help=True, help="Tasksets: the tasks that agents solve.")


@tasks.command("list")
def list_tasks(
    taskset: Annotated[str, Argument(help="A taskset's name or folder; default: list the tasksets.")] = "",
    role: Annotated[str, Option(help="Only this role: train, promote, audit, reserve.")] = "",
    language: LanguageFilter = "",
    difficulty: DifficultyFilter = "",
    kind: KindFilter = "",
    limit: LimitFilter = 0,
    as_json: AsJson = False,
) -> None:
    """List the tasksets, or the tasks of one.

    Examples: `ratchet tasks list`, `ratchet tasks list repair --role promote --kind wrong_operator --limit 5`
    """
    from ratchet.components.tasksets import load_taskset, taskset_names
    from ratchet.components.tasksets.task_filter import TaskFilter

    task_filter = TaskFilter(language, difficulty, kind, limit)
    if taskset:
        rows = _task_rows(task_filter.select(load_taskset(taskset).tasks(role or None)))
    elif role or task_filter != TaskFilter():
        raise ConfigurationError("filters apply to the tasks of one taskset; name it (see `ratchet tasks list`)")
    else:
        rows = []
        for name in taskset_names():
            loaded_taskset = load_taskset(name)
            counts = Counter(task.role.value for task in loaded_taskset.tasks())
            roles = ", ".join(f"{role_name} {count}" for role_name, count in counts.items())
            rows.append(
                {
                    "taskset": name,
                    "version": loaded_taskset.version,
                    "tasks": roles,
                    "split_by": loaded_taskset.split_by,
                    "hash": loaded_taskset.hash,
                }
            )
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


@tasks.command("show")
def show_task(
    taskset: Annotated[str, Argument(help="A taskset's name or folder.")],
    task_id: Annotated[str, Argument(help="The task's id; default: the first tasks that the filters match.")] = "",
    language: LanguageFilter = "",
    difficulty: DifficultyFilter = "",
    kind: KindFilter = "",
    limit: LimitFilter = 1,
    as_json: AsJson = False,
) -> None:
    """Show tasks: what the agent receives, and what only the grader sees.

    Examples: `ratchet tasks show repair repair/train-0001`, `ratchet tasks show orders --kind refund --limit 2`
    """
    from ratchet.components.core.errors import suggest_name
    from ratchet.components.tasksets import load_taskset
    from ratchet.components.tasksets.task_filter import TaskFilter

    loaded_taskset = load_taskset(taskset)
    if not task_id:
        selected = TaskFilter(language, difficulty, kind, limit).select(loaded_taskset.tasks())
    elif language or difficulty or kind or limit != 1:
        raise ConfigurationError("a task's id names one task; leave out the filters, or the id")
    elif task_id in loaded_taskset.by_id:
        selected = [loaded_taskset.by_id[task_id]]
    else:
        hint = suggest_name(task_id, loaded_taskset.by_id, f"see `ratchet tasks list {taskset}`")
        raise ConfigurationError(f"taskset '{taskset}' has no task '{task_id}'; {hint}")
    for number, task in enumerate(selected):
        if as_json:
            print_json(task)
        else:
            print_text("\n") if number else None
            _show_task(task)


def _task_rows(tasks: "list[TaskSpec]") -> list[dict[str, str]]:
    """Return the rows of a table of tasks, with language and difficulty only where some task has one."""
    from ratchet.components.tasksets.task_filter import task_difficulty, task_language

    optional = {"language": task_language, "difficulty": task_difficulty}
    shown = {name: value_of for name, value_of in optional.items() if any(map(value_of, tasks))}
    return [
        {"task_id": task.task_id, "role": task.role.value, "kind": task.kind, "family": task.family}
        | {name: value_of(task) for name, value_of in shown.items()}
        for task in tasks
    ]


def _show_task(task: "TaskSpec") -> None:
    import yaml

    fields = {"task": task.task_id, "hash": task.task_hash, **_task_rows([task])[0]}
    del fields["task_id"]
    print_fields(fields)
    print_text(f"\n{task.description}")
    for heading, files in (("file", task.files), ("hidden test", task.tests), ("reference", task.reference)):
        for path, text in files.items():
            print_text(f"\n--- {heading}: {path}\n{text.rstrip()}")
    if task.expected_output:
        print_text("\n--- hidden: expected output\n" + "\n".join(task.expected_output))
    for heading, content in (("world", task.world), ("hidden: criteria", task.criteria)):
        if content:
            print_text(
                f"\n--- {heading}\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120).rstrip()}"
            )


@tasks.command("validate")
def validate_taskset(
    taskset: Annotated[str, Argument(help="A taskset's name or folder.")] = "repair",
    role: Annotated[str, Option(help="Only this role.")] = "",
    limit: Annotated[int, Option(min=0, help="Maximum number of tasks (0: all).")] = 0,
    backend: Annotated[str, Option(help="The sandbox: auto, docker or local.")] = "auto",
    as_json: AsJson = False,
) -> int:
    """Validate each task without a model: the faulty files fail, the reference passes, an empty answer fails.

    Exit code 3 if a task is invalid. Example: `ratchet tasks validate repair --role promote`
    """

    from ratchet.components.operations.manual_evaluation import validate_in_sandbox
    from ratchet.components.tasksets import load_taskset
    from ratchet.components.tasksets.plain_rows_import import changed_rows
    from ratchet.components.tasksets.taskset_files import taskset_folder

    folder = taskset_folder(taskset)
    if rows := changed_rows(load_taskset(folder), folder):
        print_note(f"the tasks are older than {rows}: `ratchet tasks import {rows} -o {folder}` imports it again")
    report = validate_in_sandbox(taskset, role=role or None, limit=limit or None, backend=backend)
    if as_json:
        print_json(report)
    else:
        for problem in report["problems"][:20]:
            print_note(f"{problem['task_id']}: {problem['message']}")
        print_text(
            f"{report['tasks']} tasks, {len(report['problems'])} problems, {report['seconds']:.1f} s "
            f"in the {report['backend']} sandbox"
        )
    return 3 if report["problems"] else 0


@tasks.command("new")
def new(
    folder: Annotated[Path, Argument(help="The taskset's folder, which also gives its name; new or empty.")],
    as_json: AsJson = False,
) -> None:
    """Make a small taskset to begin from: four coding tasks with hidden tests, in commented YAML.

    Example: `ratchet tasks new data/tasksets/mine && ratchet tasks validate data/tasksets/mine`
    """
    from ratchet.components.tasksets.plain_rows_import import ROWS_FILE, new_taskset

    import_result = new_taskset(folder)
    if as_json:
        _show_import(folder, import_result, as_json=True)
        return
    rows = folder / ROWS_FILE
    print_text(f"{folder}: {len(import_result.tasks)} tasks, from {rows}")
    print_note(
        f"edit {rows}, then `ratchet tasks import {rows} -o {folder}` and `ratchet tasks validate {folder}`; play it with "
        f"`ratchet evaluate --taskset {folder} --policy teacher`"
    )


@tasks.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a taskset's files. Example: `ratchet tasks schema > taskset.schema.json`"""
    from ratchet.components.tasksets.taskset_schema import schema_text

    print(schema_text(), end="")


@tasks.command("import")
def import_taskset(
    source: Annotated[
        str,
        Argument(
            help="A file of rows of your own (Ratchet's docs/tasksets.md), or the format of FILE: swebench, aime, math, gpqa, "
            "humaneval, mbpp, livecodebench; or reasoning-gym; or verifiers with an installed package, openenv with a server's "
            "URL, tau2 with a domain, harbor with a folder of task folders."
        ),
    ],
    file: Annotated[
        str,
        Argument(
            help="The rows, as published (JSON lines, JSON, CSV, Parquet), the package, or the URL. None for reasoning-gym."
        ),
    ] = "",
    *,
    to: Annotated[
        Path, Option("--to", "-o", help="The taskset's folder, which also gives its name: data/tasksets/NAME.")
    ],
    role: Annotated[
        str,
        Option(
            help="train, promote, audit or reserve; default: train for swebench, audit for benchmarks, else all four split."
        ),
    ] = "",
    generator: Annotated[
        list[str] | None, Option(help="reasoning-gym: a generator (repeatable), such as chain_sum.")
    ] = None,
    set: Annotated[
        list[str] | None,
        Option(
            help="A setting (repeatable): reasoning-gym: chain_sum.max_terms=3; a verifiers taskset, OpenEnv's reset: KEY=VALUE."
        ),
    ] = None,
    size: Annotated[
        int, Option(min=1, help="reasoning-gym: tasks of each generator; verifiers: the most tasks; openenv: seeds.")
    ] = 500,
    seed: Annotated[int, Option(help="Seed of reasoning-gym's tasks, or of the order of GPQA's options.")] = 0,
    repos: Annotated[
        str, Option(help="swebench: folder of clones or bundles, or a URL such as https://github.com/{repo}.git")
    ] = "",
    image_template: Annotated[
        str, Option(help="swebench: image, with {instance_id}, {docker_id}, {repo}, {name}, {version}.")
    ] = "",
    test_command: Annotated[
        str, Option(help="swebench: command with {tests} or {modules}; default: the row's, pytest or Django's.")
    ] = "",
    setup_command: Annotated[
        str, Option(help="swebench: command to run in the sandbox after the files are written.")
    ] = "",
    environment: Annotated[
        str, Option(help="Own rows: where they are played; default: ratchet/sandbox, ratchet/reasoning with answers.")
    ] = "",
    split_by: Annotated[
        Literal["family", "instance"], Option(help="Own rows: what roles keep together: family or instance.")
    ] = "family",
    language: LanguageFilter = "",
    difficulty: DifficultyFilter = "",
    kind: KindFilter = "",
    limit: LimitFilter = 0,
    as_json: AsJson = False,
) -> int:
    """Make a taskset of rows of your own, a benchmark's file, SWE-bench's rows (SWE-Gym's, SWE-rebench's), or generators.

    Invalid rows are listed with file and line and give exit code 3. Examples:
    `ratchet tasks import rows.jsonl -o data/tasksets/mine`,
    `ratchet tasks import reasoning-gym --generator chain_sum --set chain_sum.max_terms=3 --size 500 -o data/tasksets/sums`,
    `ratchet tasks import gpqa gpqa_diamond.csv -o data/tasksets/gpqa`,
    `ratchet tasks import swebench lite.jsonl --repos "https://github.com/{repo}.git" --role promote -o data/tasksets/lite`
    """
    from ratchet.components.tasksets import swebench_import
    from ratchet.components.tasksets.benchmark_import import FORMATS, import_benchmark
    from ratchet.components.tasksets.peer_import import FRAMEWORKS, import_peer_tasks, read_settings
    from ratchet.components.tasksets.plain_rows_import import import_plain_rows
    from ratchet.components.tasksets.reasoning_gym_import import import_generators, read_generator_settings
    from ratchet.components.tasksets.task_filter import TaskFilter
    from ratchet.components.tasksets.taskset_files import HEAD_FILE

    format, known = source, ("swebench", "reasoning-gym", *FRAMEWORKS, *FORMATS)
    own_rows = format not in known and not file and (Path(source).suffix != "" or Path(source).exists())
    if not own_rows and format not in known:
        raise ConfigurationError(
            f"unknown format '{format}' of rows; give a file of rows, or one of {', '.join(known)} and its file"
        )
    task_filter = TaskFilter(language, difficulty, kind, limit)
    if role and role not in list(Role):
        raise ConfigurationError(
            f"unknown role '{role}'; choose one of {', '.join(known_role.value for known_role in Role)}"
        )
    if not own_rows and (not file) != (format == "reasoning-gym"):
        needs = (
            "is generated and reads no file; remove it" if file else "needs the file of rows, the package or the URL"
        )
        raise ConfigurationError(f"{format} {needs}")
    try:
        if own_rows:
            import_result = import_plain_rows(
                to,
                Path(source),
                role=Role(role) if role else None,
                environment=environment,
                split_by=split_by,
                seed=seed,
                task_filter=task_filter,
            )
        elif format in FRAMEWORKS:
            _, read_tasks = FRAMEWORKS[format]
            tasks = read_tasks(file, read_settings(set or []), size)
            import_result = import_peer_tasks(to, tasks, seed=seed, role=Role(role) if role else None)
        elif not file:
            configs = read_generator_settings(generator or [], set or [])
            import_result = import_generators(to, configs, size=size, seed=seed, role=Role(role) if role else None)
        elif format == "swebench":
            if not repos:
                raise ConfigurationError("swebench needs --repos: a folder of clones or bundles, or a URL with {repo}")
            settings = swebench_import.ImportSettings(
                repos, image_template, test_command, setup_command, Role(role or "train")
            )
            import_result = swebench_import.import_rows(to, Path(file), settings, task_filter)
        else:
            import_result = import_benchmark(
                to, format, Path(file), role=Role(role or "audit"), seed=seed, task_filter=task_filter
            )
    except DataError as error:
        if (to / HEAD_FILE).is_file():
            raise DataError(f"{error}; {to} still holds the tasks of before") from error
        raise
    _show_import(to, import_result, as_json=as_json)
    return 3 if import_result.refused else 0


@tasks.command("export")
def export_taskset(
    taskset: Annotated[str, Argument(help="A taskset's name or folder.")],
    to: Annotated[Path, Option("--to", "-o", help="The new folder of the package.")],
    format: Annotated[
        Literal["verifiers", "harbor"],
        Option(help="verifiers: an installable package. harbor: a folder for each task."),
    ] = "verifiers",
    role: Annotated[str, Option(help="harbor: only tasks of this role.")] = "train",
    as_json: AsJson = False,
) -> None:
    """Write a taskset for another framework, in which our environments play and grade it.

    Examples: `ratchet tasks export orders -o ratchet-orders && uv pip install ./ratchet-orders && vf-validate ratchet-orders`,
    `ratchet tasks export repair --format harbor --role audit -o repair-harbor && harbor run -p repair-harbor -a oracle`
    """
    from ratchet.components.environments.verifiers_package import write_package
    from ratchet.components.tasksets import load_taskset
    from ratchet.components.tasksets.harbor_export import write_harbor_tasks
    from ratchet.components.tasksets.taskset_files import taskset_folder

    if to.exists():
        raise ConfigurationError(f"{to} exists; give a new folder")
    loaded_taskset = load_taskset(taskset)
    if format == "harbor":
        count = len(write_harbor_tasks(loaded_taskset.tasks(role), to))
        text = f"{to}: {count} task folders"
    else:
        for task in loaded_taskset.tasks():
            place = task.repository.source if task.repository else "/"
            if "://" not in place and not Path(place).is_absolute():
                raise ConfigurationError(
                    f"task '{task.task_id}' has its repository at {place}, which an installed package does not find; "
                    "only tasks without a repository, or with its URL, can be exported"
                )
        package = write_package(taskset_folder(taskset), loaded_taskset.name, loaded_taskset.version, to)
        count = len(loaded_taskset.tasks())
        text = f"{to}: the package {package}, {count} tasks"
    if as_json:
        print_json({"folder": str(to), "tasks": count})
    else:
        print_text(text)


@tasks.command("serve")
def serve_taskset(
    taskset: Annotated[str, Argument(help="A taskset's name or folder.")],
    role: Annotated[str, Option(help="Only tasks of this role.")] = "train",
    host: Annotated[
        str, Option(help="Address to listen on. Another than loopback is open to whoever reaches it.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65535, help="Port to listen on.")] = 8000,
) -> None:
    """Serve a taskset's tasks as an OpenEnv environment, until it is interrupted. Needs the package openenv-core.

    Example: `ratchet tasks serve orders --port 8000`, and there `openenv validate --url http://127.0.0.1:8000`
    """
    from ratchet.components.environments.peer_task import missing_package
    from ratchet.components.tasksets import load_taskset

    loaded_taskset = load_taskset(taskset)
    served = loaded_taskset.tasks(role)
    if not served:
        raise ConfigurationError(f"taskset '{taskset}' has no task of the role {role}")
    try:
        import uvicorn

        from ratchet.components.environments.openenv_server import make_app
    except ImportError as error:
        raise missing_package("openenv-core", error) from error
    print_note(f"{len(served)} tasks of {loaded_taskset.name} at http://{host}:{port}")
    uvicorn.run(make_app(loaded_taskset.head.environment, served), host=host, port=port, log_level="warning")


@tasks.command("faults")
def make_fault_tasks(
    packages: Annotated[
        list[str],
        Argument(
            help="Packages of the index, such as toolz or toolz==1.0.0, or source distributions (.tar.gz). "
            "Without any, those of the folder's manifest.json."
        ),
    ] = [],  # noqa: B006 - typer copies it
    *,
    to: Annotated[Path, Option("--to", "-o", help="The taskset's folder, which also gives its name.")],
    per_package: Annotated[int, Option(min=1, help="Maximum number of tasks of one package.")] = 60,
    workers: Annotated[int, Option(min=1, help="Packages at the same time, each in processes of its own.")] = 2,
    seed: Annotated[int, Option(help="Seed of the choice of faults.")] = 0,
    backend: Annotated[str, Option(help="The sandbox: auto, docker or local.")] = "auto",
    as_json: AsJson = False,
) -> int:
    """Make repair tasks of released packages: faults that their own tests prove. The same command goes on where it stopped.

    Packages that give no task are listed and give exit code 3. Example:
    `ratchet tasks faults toolz boltons more-itertools -o data/tasksets/releases`
    """
    from ratchet.components.sandboxes import SandboxConfig, make_sandbox
    from ratchet.components.tasksets.faults.fault_taskset import generate

    config = SandboxConfig.load({"backend": backend})

    def show(package: str, count: int, problem: str) -> None:
        print_note(problem or f"{package}: {count} proven")

    made, results = generate(
        to, packages, lambda: make_sandbox(config),
        per_package=per_package, workers=workers, seed=seed, on_package=show,
    )  # fmt: skip
    problems = [result.problem for result in results if result.problem]
    used = len({task.metadata["package"] for task in made})
    if as_json:
        print_json({"taskset": str(to), "tasks": len(made), "packages": used, "problems": problems})
    else:
        print_text(f"{to}: {len(made)} tasks of {used} packages; {len(problems)} packages gave none")
    return 3 if problems else 0


def _show_import(folder: Path, import_result: "ImportResult", *, as_json: bool) -> None:
    if as_json:
        print_json({"taskset": str(folder), "tasks": len(import_result.tasks), "refused": import_result.refused})
        return
    for row in import_result.refused:
        print_note(f"{row.where}: {row.why}")
    print_text(f"{folder}: {len(import_result.tasks)} tasks, {len(import_result.refused)} rows refused")
