"""Commands on models: train, models list, models fetch, models prune, serve."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError
from ratchet.components.core.errors import suggest_name
from ratchet.components.core.home import credential_path, home_folder, model_server_name
from ratchet.render.terminal import (
    CommandInterrupted,
    bytes_text,
    print_fields,
    print_json,
    print_note,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from ratchet.components.tracking.checkpoint_retention import PruneReport
    from ratchet.components.training.config.job_config import AnyJob

METHODS = ("sft", "dpo", "grpo")


def train(
    what: Annotated[str | None, Argument(help="sft, dpo or grpo; or the YAML or JSON file of a job.")] = None,
    recipe: Annotated[str | None, Option(help="A recipe of flows/recipes, or its path; default: METHOD.")] = None,
    size: Annotated[str | None, Option(help="A size of the recipe: smoke, night or full.")] = None,
    model: Annotated[str | None, Option(help="Base model: `champion`, a checkpoint's folder, or a hub id.")] = None,
    revision: Annotated[str | None, Option(help="Branch, tag or commit of a hub's model, which is pinned.")] = None,
    data: Annotated[Path | None, Option(help="An export's folder or a JSONL file; default: METHOD's.")] = None,
    sets: Annotated[
        list[str] | None, Option("--set", help="A key and value of the job, such as optimization.steps=30.")
    ] = None,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Folder of the job; default: under .ratchet/training.")
    ] = None,
    resume: Annotated[Path | None, Option(help="Resume the job in this folder, exactly where it was.")] = None,
    show: Annotated[bool, Option("--show", help="Print the complete job as YAML, and do not run it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run one training job. After a kill the same command resumes from the last checkpoint; a finished job is not repeated.

    sft trains on rows, dpo on pairs, grpo on episodes that it plays. Settings that are not given come from the recipe. Licence,
    size and commit of a model are shown before it is loaded; Python code that comes with the model is run only with
    --set trust_remote_code=true.

    Examples: `ratchet train sft --model champion`, `ratchet train dpo --model champion --set beta=0.2 -o runs/dpo`,
    `ratchet train grpo --size smoke --model champion`, `ratchet train sft --model ORG/NAME --revision v1.0 --set lora.r=16`,
    `ratchet train --resume runs/dpo`, `ratchet train job.yaml`
    """
    from ratchet.components.operations import manual_training
    from ratchet.components.training.config.job_config import load_job

    options = {"recipe": recipe, "size": size, "model": model, "revision": revision, "data": data, "out": out}
    named = [f"--{name}" for name, value in options.items() if value is not None] + (["--set"] if sets else [])
    if resume is not None:
        _refuse_other_options("--resume", [*([what] if what else []), *named])
        job = manual_training.resume_job(resume)
    elif what in METHODS:
        job = manual_training.job_from_recipe(what, sets=sets or (), needs_data=not show, **options)  # type: ignore[arg-type]
    elif what is not None and (Path(what).suffix in (".yaml", ".yml", ".json") or Path(what).is_file()):
        _refuse_other_options(what, named)
        job = load_job(Path(what))
    else:
        hint = suggest_name(what or "", METHODS, f"give {', '.join(METHODS)}, a job's file, or --resume")
        raise ConfigurationError(f"'{what or ''}' is neither a method nor a job file; {hint}")
    _run_job(job, show=show, as_json=as_json)


def _refuse_other_options(what: str, others: list[str]) -> None:
    """Raise ConfigurationError for options beside a complete job."""
    if others:
        raise ConfigurationError(f"{what} is a complete job; remove {', '.join(others)}")


def _run_job(job: "AnyJob", *, show: bool, as_json: bool) -> None:
    from ratchet.components.operations import manual_training

    if show:
        import yaml

        values = job.model_dump(mode="json")
        print_json(values) if as_json else print_text(
            yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip()
        )
        return
    if (base := manual_training.base_model_facts(job)) is not None:
        print_note(
            f"model: {base.line()}" + ("; Python code of the model is run" if job.model.trust_remote_code else "")
        )
    print_note(f"output: {job.output}")
    try:
        report = manual_training.train_manually(job)
    except KeyboardInterrupt:
        raise CommandInterrupted(f"interrupted; continue with `ratchet train --resume {job.output}`") from None
    if as_json:
        print_json(report)
    else:
        print_fields({name: value for name, value in report.items() if not isinstance(value, dict)})


models = typer.Typer(no_args_is_help=True, help="Registered models and their checkpoints.")

ModelOption = Annotated[str, Option(help="The registered model.")]


@models.command("list")
def list_models(name: ModelOption = "agent", as_json: AsJson = False) -> None:
    """List versions with their aliases, base model, and size and location of the checkpoint.

    Example: `ratchet models list`
    """
    from ratchet.components.tracking.checkpoint_retention import BASE_TAG, checkpoint_size
    from ratchet.components.tracking.model_registry import named_versions

    rows: list[dict[str, Any]] = [
        {
            "version": ref.version,
            "policy_version": ref.policy_version,
            "aliases": list(names),
            "base": ref.tags.get(BASE_TAG),
            "bytes": None if ref.is_pruned else checkpoint_size(ref),
            "location": None if ref.is_pruned else ref.location,
        }
        for ref, names in named_versions(name)
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_text(f"no version of '{name}' is registered yet: `ratchet night` registers the first")
        return
    print_table(
        ("version", "policy version", "aliases", "trained from", "size", "location"),
        [
            (
                row["version"],
                row["policy_version"],
                ", ".join(row["aliases"]) or None,
                row["base"] or None,
                bytes_text(row["bytes"]),
                row["location"] or "pruned",
            )
            for row in rows
        ],
    )


@models.command("fetch")
def fetch_model(
    which: Annotated[str, Argument(help="A version's number or an alias, such as champion.")],
    out: Annotated[
        Path | None, Option("--out", "-o", help="Target folder; default: under .ratchet/checkpoints.")
    ] = None,
    name: ModelOption = "agent",
    as_json: AsJson = False,
) -> None:
    """Download a checkpoint and verify each file's hash. Files that exist already are not downloaded again.

    Example: `ratchet models fetch champion`
    """
    from ratchet.components.tracking import model_registry as registry
    from ratchet.components.tracking.model_registry import aliases, version_named

    version = version_named(which, name)
    if version is None:
        names = ", ".join(aliases(name)) or "none"
        raise ConfigurationError(f"model '{name}' has no alias '{which}'; aliases: {names}; or give a version's number")
    place = registry.download(version, name, target=out)
    digest = registry.get_version(version, name).checkpoint_hash
    if as_json:
        print_json({"version": version, "place": str(place), "sha256": digest})
    else:
        print_text(f"version {version} is in {place} ({digest[:12]})")


@models.command("prune")
def prune_checkpoints(
    keep: Annotated[int, Option(min=0, help="Number of newest versions to keep in any case.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only list what would be removed.")] = False,
    name: ModelOption = "agent",
    as_json: AsJson = False,
) -> None:
    """Remove checkpoints that no alias, no unfinished night and none of their descendants needs, except the newest; and
    uploads abandoned a day ago.

    The version and its tags stay in the registry; only its files are removed. Example: `ratchet models prune --keep 5 --dry-run`
    """
    from ratchet.components.nights.night_history import models_in_use
    from ratchet.components.tracking import checkpoint_retention

    report = checkpoint_retention.prune_checkpoints(keep, name, in_use=models_in_use(), dry_run=dry_run)
    if as_json:
        print_json(report)
    else:
        show_pruned(report, dry_run)


def show_pruned(report: "PruneReport", dry_run: bool) -> None:
    """Print the versions that keep their checkpoints, and what was removed."""
    print_table(
        ("version", "policy version", "kept because"),
        [(checkpoint.version, checkpoint.policy_version, checkpoint.why) for checkpoint in report.kept],
    )
    print_fields(
        {
            "would remove" if dry_run else "removed": ", ".join(map(str, report.versions)) or "no version",
            "size": bytes_text(report.bytes),
            "abandoned uploads": len(report.unfinished),
        }
    )


# Unknown options stay errors: only what follows `--` is the engine's, and a mistyped option of ours is none of it.
PASS_TO_ENGINE = {"allow_extra_args": True, "ignore_unknown_options": False}


def serve(
    context: typer.Context,
    model: Annotated[str, Argument(help="Folder of a checkpoint or LoRA adapter, or a model name of the engine.")],
    port: Annotated[int | None, Option(min=1, max=65535, help="Port on 127.0.0.1; default: a free one.")] = None,
    python: Annotated[Path | None, Option(help="Python of the engine; default: $RATCHET_VLLM_PYTHON.")] = None,
    engine: Annotated[Literal["vllm", "transformers"], Option(help="Which server to start.")] = "vllm",
    format: Annotated[
        Literal["native", "tool_call", "json", "xml", "react"], Option(help="Format of the policy's tool calls.")
    ] = "tool_call",
    adapters: Annotated[int | None, Option(min=1, help="Accept LoRA adapters up to this rank (vLLM).")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a model with vLLM (or transformers' own server) until Ctrl-C.

    Prints its address, the policy string for it (`policy:` of a collection), and the file of its key, which clients of
    this home find automatically. Arguments after `--` are passed to the engine. Example: `ratchet serve
    .ratchet/nights/N/training/challenger/checkpoint --port 8000 -- --max-model-len 2048`
    """
    from ratchet.components.core.home import forget_server, record_server, recorded_address
    from ratchet.components.core.processes import free_port
    from ratchet.components.models.model_server import ModelServer
    from ratchet.components.models.tool_call_formats import ToolCallFormatName

    port = port or free_port()
    log = home_folder("logs") / f"model-{port}.log"
    server = ModelServer(
        model,
        engine=engine,
        python=python,
        port=port,
        log=log,
        adapters=adapters,
        arguments=context.args,
        on_progress=print_note,
    )
    policy = home_folder("run") / f"model-{server.port}.yaml"
    try:
        with server:
            policy.write_text(server.config(ToolCallFormatName(format), logprobs=True).as_yaml(), encoding="utf-8")
            assert server.pid is not None
            record_server("model", server.base_url, server.pid)
            ready = {
                "base_url": server.base_url,
                "model": server.served.name,
                "policy": f"openai:{policy}",
                "key_file": str(credential_path(model_server_name(server.port))),
                "pid": server.pid,
            }
            print_json(ready) if as_json else print_fields(ready)
            print_note("ready; Ctrl-C stops it")
            server.wait()
    except KeyboardInterrupt:
        print_note("stopped")
    finally:
        # Another `ratchet serve` may have recorded its own server meanwhile.
        if recorded_address("model") == server.base_url:
            forget_server("model")
        policy.unlink(missing_ok=True)
