"""Commands on nights and the champion: plan, night, online, schedule, promote, rollback, report."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import require_clone
from ratchet.render.terminal import CommandExitCode, open_page, print_json, print_note, print_text


def night(
    scale: Annotated[str, Option(help="A scale's name, or a YAML file of one.")] = "smoke",
    seed: Annotated[int | None, Option(help="Seed of tasks and samples; default: the last night's + 1.")] = None,
    night: Annotated[str | None, Option("--night", help="Name of the night, new or to resume.")] = None,
    recipe: Annotated[str | None, Option(help="How to train the challenger: a recipe's name or YAML file.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print the decision record as the last line of stdout.")] = False,
) -> None:
    """Run one night: collect, build, train, evaluate, and promote the challenger or keep the champion.

    The same command resumes an interrupted night. Examples: `ratchet night --scale smoke --seed 3`, `ratchet night
    --recipe expert-iteration`
    """
    from ratchet.flows.run_night import run_night
    from ratchet.render.comparison import show_decision

    require_clone()
    decision = run_night(scale, seed, night, recipe)
    show_decision(decision)
    print_note("`ratchet ui` shows the night in Prefect and MLflow")
    if as_json:
        print_json(decision)


def online(
    nights: Annotated[int, Option(min=1, help="Number of nights.")],
    patience: Annotated[int | None, Option(min=1, help="End when so many nights in a row promoted nothing.")] = None,
    scale: Annotated[str, Option(help="A scale's name, or a YAML file of one.")] = "smoke",
    seed: Annotated[int | None, Option(help="Seed of the first night; default: the last night's + 1.")] = None,
    recipe: Annotated[str | None, Option(help="How to train the challengers; default: the scale's.")] = None,
) -> int:
    """Run nights in a row, each from the champion of the one before.

    The same command goes on with an interrupted series. A night that fails ends it with the exit code of `ratchet night`.
    Example: `ratchet online --nights 30 --patience 5`
    """
    from ratchet.flows.night_series import play_series

    require_clone()
    # An own type: the night has printed why it ended.
    return CommandExitCode(play_series(nights, patience, scale, seed, recipe, say=print_note))


def plan(
    scale: Annotated[str, Option(help="A scale's name, or a YAML file of one.")] = "smoke",
    seed: Annotated[int | None, Option(help="Seed of tasks and samples; default: the last night's + 1.")] = None,
    night: Annotated[str | None, Option("--night", help="Name of the night, new or to resume.")] = None,
    recipe: Annotated[str | None, Option(help="How to train the challenger: a recipe's name or YAML file.")] = None,
    as_json: AsJson = False,
) -> int:
    """Show what `ratchet night` with the same options would do: steps, time, disk, money, memory, and what it can prove.

    Starts and writes nothing. Times are medians over the past nights of this home. Exit code 4 where the training does not
    fit into memory. Examples: `ratchet plan`, `ratchet plan --scale gpu --recipe grpo --json`
    """
    from ratchet.flows.night_plan import plan_night
    from ratchet.render.plan import show_plan

    require_clone()
    planned = plan_night(scale, seed, night, recipe)
    print_json(planned) if as_json else show_plan(planned)
    return InfrastructureError.exit_code if planned.fits is False else 0


def schedule(
    cron: Annotated[str, Option(help="When: minute, hour, day of month, month, day of week.")] = "0 1 * * *",
    timezone: Annotated[str, Option(help="Time zone of the cron times, such as Europe/Berlin.")] = "UTC",
    scale: Annotated[str, Option(help="A scale's name, or a YAML file of one.")] = "smoke",
    recipe: Annotated[str | None, Option(help="How to train the challengers; default: the scale's.")] = None,
    prefect_port: Annotated[int, Option(min=1, max=65535, help="Prefect's port on 127.0.0.1.")] = 4200,
) -> None:
    """Serve the nightly flow on a schedule, until Ctrl-C. Nights never overlap, and a restart keeps the schedule.

    Example: `ratchet schedule --cron "30 2 * * *" --timezone Europe/Berlin`
    """
    from ratchet.flows.night_schedule import serve_nights

    require_clone()
    serve_nights(cron, timezone, scale, prefect_port, recipe=recipe, say=print_note)


def promote(
    which: Annotated[str | None, Argument(help="A version of the model `agent`; with --explain also a night.")] = None,
    why: Annotated[str | None, Option(help="The reason; it is stored in the registry.")] = None,
    explain: Annotated[bool, Option("--explain", help="Only explain the decision of a night or a version.")] = False,
    as_json: Annotated[bool, Option("--json", help="With --explain: print the decision record.")] = False,
) -> None:
    """Make a registered version the champion by hand; or, with --explain, show why one was promoted or not.

    Examples: `ratchet promote 3 --why "4 loops"`, `ratchet promote --explain`, `ratchet promote --explain 3`
    """
    if explain:
        if why is not None:
            raise ConfigurationError("--why is not valid with --explain, which only reads")
        _explain(which, as_json)
        return
    if as_json:
        raise ConfigurationError("--json is only valid with --explain")
    from ratchet.components.operations.manual_promotion import LONGEST_VERSION, promote_version

    if which is None or not which.isdecimal() or len(which) > LONGEST_VERSION:
        problem = f"'{which}' is no version" if which else "no version was given"
        raise ConfigurationError(f"{problem}; `ratchet models list` shows their numbers (or give --explain)")
    if not (why or "").strip():
        raise ConfigurationError("give the reason with --why; it is stored in the registry")
    print_text(promote_version(int(which), str(why)))


def rollback(
    why: Annotated[str, Option(help="The reason; it is stored with the version that is replaced.")],
    to: Annotated[int | None, Option("--to", min=1, help="The version that becomes champion again.")] = None,
    steps: Annotated[int, Option(min=1, help="Or the number of champions to go back.")] = 1,
) -> None:
    """Make an earlier champion the champion again. Repeated rollbacks go to older champions; they do not redo.

    Examples: `ratchet rollback --why "it loops"`, `ratchet rollback --to 3 --why "the last that was sound"`
    """
    if not why.strip():
        raise ConfigurationError("give the reason with --why; it is stored in the registry")
    if to is not None and steps != 1:
        raise ConfigurationError("give --to or --steps, not both")
    from ratchet.components.operations.manual_promotion import roll_back_champion

    print_text(roll_back_champion(to, steps, why))


def _explain(which: str | None, as_json: bool) -> None:
    """Print the decision of a night or a version as a table and text, or as JSON."""
    import msgspec

    from ratchet.components.operations.manual_promotion import find_decision
    from ratchet.render.comparison import show_decision

    decision = find_decision(which)
    if as_json:
        print_json(decision)
    else:
        show_decision(msgspec.to_builtins(decision))


def report(
    night: Annotated[str | None, Argument(help="A night's name; default: the latest.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="An .html or .md file; default: both forms.")] = None,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown on stdout; write no file.")] = False,
    show: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Write a night's report: verdict, figures, decisive episodes, data, cost, and next steps on one page.

    The page is self-contained: it loads nothing and runs no script. The report of a failed or unfinished night shows its
    progress. Examples: `ratchet report --open`, `ratchet report 2026-11-21-a1b2 -o tuesday.html`
    """
    from ratchet.components.nights.night_state import open_night
    from ratchet.flows.steps.report import latest_night, night_report, save_report, write_report

    require_clone()
    if markdown and (out is not None or show):
        raise ConfigurationError(
            "--markdown prints on stdout; leave out --out and --open, or give --out a file that ends in .md without --markdown"
        )
    night_state = latest_night() if night is None else open_night(night)
    rendered_report = night_report(night_state)
    if markdown:
        print_text(rendered_report.markdown.rstrip("\n"))
        return
    path = write_report(night_state, rendered_report) if out is None else save_report(rendered_report, out)
    print_text(str(path))
    if show:
        open_page(path)
