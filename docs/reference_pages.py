"""The reference pages of the site, made from the code: the Python API, the commands, and every key of configuration.

What a key does stands in the docstring of its class (or after its field), and for `params.yaml` in the comments of that file.
"""

import inspect
import re
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import griffe
import msgspec
import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from typer.cli import get_docs_for_click

ROOT = Path(__file__).parents[1]
PARAMS = ROOT / "params.yaml"


class Key(NamedTuple):
    """A key of configuration. `default` is None for a required key; `effect` is empty for an undocumented one."""

    name: str
    type: str
    default: str | None
    effect: str
    sections: tuple[type, ...]


def reference_pages() -> dict[str, str]:
    """Return the text of every reference page by its path in the site."""
    from ratchet.components.models.policy_config import OpenAIConfig
    from ratchet.components.nights.recipe_config import Stage
    from ratchet.components.nights.scale_config import Scale
    from ratchet.components.training.config.job_config import JOBS

    anchors: dict[type, str] = {}
    jobs = [sections_markdown(job, f"method: {method}", "job.md", anchors) for method, job in JOBS.items()]
    return {
        "reference/python.md": python_page(),
        "reference/commands.md": commands_page(),
        "reference/job.md": "".join([JOB_INTRODUCTION, *jobs]),
        "reference/recipe.md": RECIPE_INTRODUCTION + sections_markdown(Stage, "A stage", "recipe.md", anchors),
        "reference/scale.md": SCALE_INTRODUCTION + sections_markdown(Scale, "A scale", "scale.md", anchors),
        "reference/server.md": SERVER_INTRODUCTION
        + sections_markdown(OpenAIConfig, "A server's policy", "server.md", anchors),
        "reference/params.md": params_page(),
    }


JOB_INTRODUCTION = """# Keys of a job

A job is a YAML or JSON file for `ratchet train FILE`, or what `--set KEY=VALUE` changes.
`ratchet train sft --show` prints a whole job. Sections that several methods share are
described once. See [training](../training.md).
"""
RECIPE_INTRODUCTION = """# Keys of a recipe

A recipe is a file in `flows/recipes`, or one of your own for `ratchet night --recipe FILE`.
It holds the keys of one stage, or `stages` by name. `challenger` names the stage whose model becomes the challenger
(default: the last one that trains a policy). `sizes` holds, by name, the keys that differ in that size. Every other key
of a stage is a section of its [job](job.md).
"""
SCALE_INTRODUCTION = """# Keys of a scale

A scale is a file in `flows/scales`, or one of your own for `ratchet night --scale FILE`. It holds all
parameters of a night.
"""
SERVER_INTRODUCTION = """# Keys of a policy behind a server

The YAML file of a policy `openai:FILE.yaml`: a model behind a server with OpenAI's API. Only `base_url` and `model` are
required. See [your company's server](../servers.md#your-companys-server).
"""
PARAMS_INTRODUCTION = """# Keys of `params.yaml`

`params.yaml` shapes [the data build](../build.md). A changed key runs the stages again that depend on it.
"""


def python_page() -> str:
    """Return the page of everything that `import ratchet` offers, by the component that it comes from."""
    import ratchet

    groups: dict[str, list[str]] = {}
    for name, module in sorted(ratchet._sources().items()):
        groups.setdefault(module.split(".")[2], []).append(name)
    parts = ["# Python API\n\nEverything here is imported from `ratchet`. Other modules may move.\n"]
    for group, names in sorted(groups.items()):
        parts += [f"\n## {group.capitalize()}\n", *(f"\n::: ratchet.{name}\n" for name in names)]
    return "".join(parts)


def commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    from ratchet.cli import app

    root = typer.main.get_command(app)
    docs = get_docs_for_click(obj=root, ctx=root.context_class(root), name="ratchet", title="Commands")
    exits = "Wrong use ends with exit code 2, bad data with 3, a failing machine or server with 4."
    return docs.replace("# Commands\n", f"# Commands\n\n{exits}\n", 1)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join("| " + " | ".join(" ".join(c.replace("|", "\\|").split()) for c in row) + " |\n" for row in lines)


KEY_COLUMNS = ("key", "type", "default", "effect and unit")


def sections_markdown(model: type, title: str, page: str, anchors: dict[type, str]) -> str:
    """Return the tables of a configuration class and of the sections in it that no earlier page describes.

    `anchors`: where each class is described; extended by those described here.
    """
    anchors[model] = f"{page}#{model.__name__.lower()}"
    waiting, parts = [(model, f"## {title}", "")], []
    while waiting:
        section, heading, prefix = waiting.pop(0)
        rows = []
        for key in keys_of(section):
            kind = key.type
            for inner in key.sections:
                if inner not in anchors:
                    anchors[inner] = f"{page}#{inner.__name__.lower()}"
                    waiting.append((inner, f"### `{prefix}{key.name}`", f"{prefix}{key.name}."))
                kind = kind.replace(inner.__name__, f"[section]({anchors[inner]})")
            default = "required" if key.default is None else "" if key.sections else f"`{key.default}`"
            effect = key.effect or (summary(key.sections[0]) if key.sections else "")
            rows.append((f"`{key.name}`", kind, default, effect))
        introduction = summary(section) if prefix else ""
        parts.append(f"\n{heading} {{#{section.__name__.lower()}}}\n\n{introduction}\n\n" + table(KEY_COLUMNS, rows))
    return "".join(parts)


def keys_of(model: type) -> list[Key]:
    """Return the keys of a configuration class: a pydantic model, or a msgspec struct."""
    return [
        Key(name, type_text(annotation, metadata), default, effect_of(model, name), tuple(sections_in(annotation)))
        for name, (annotation, metadata, default) in _fields(model).items()
    ]


def _fields(model: type) -> dict[str, tuple[Any, Any, str | None]]:
    """Return the annotation, the constraints, and the default (None where required) of each field."""
    if issubclass(model, BaseModel):
        defaults = {
            name: None if field.is_required() else value_text(field.get_default(call_default_factory=True))
            for name, field in model.model_fields.items()
        }
        return {name: (field.annotation, field.metadata, defaults[name]) for name, field in model.model_fields.items()}
    hints = inspect.get_annotations(model, eval_str=True)
    return {
        field.name: (hints[field.name], (), None if field.required else value_text(field.default))
        for field in msgspec.structs.fields(model)
    }


def sections_in(annotation: Any) -> Iterator[type]:
    """Yield the configuration classes in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel | msgspec.Struct):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_in(inner)


SIMPLE_TYPES = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}
SIMPLE_TYPES |= {NoneType: "null", Any: "any"}


def type_text(annotation: Any, metadata: Any = ()) -> str:
    """Return a type with its bounds in words: `number > 0`, `list of text`, `a` or `b`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        text = " or ".join(f"`{value}`" for value in arguments)
    elif origin in (Union, UnionType):
        return " or ".join(type_text(argument, metadata if argument is not NoneType else ()) for argument in arguments)
    elif origin in (tuple, list):
        text = f"list of {type_text(arguments[0])}"
    elif origin is dict:
        text = f"mapping of {type_text(arguments[0])} to {type_text(arguments[1])}"
    elif hasattr(annotation, "__members__"):
        text = " or ".join(f"`{member.value}`" for member in annotation)
    else:
        text = SIMPLE_TYPES.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return text + bounds_text(metadata)


def bounds_text(metadata: Any) -> str:
    """Return the bounds of a number, such as ` > 0, ≤ 1`."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    constraints = [item for each in metadata for item in (each, *getattr(each, "metadata", ()))]
    bounds = ((sign, getattr(each, name, None)) for each in constraints for name, sign in signs.items())
    return ",".join(f" {sign} {bound:g}" for sign, bound in bounds if bound is not None)


def value_text(value: Any) -> str:
    """Return a default as it would stand in YAML."""
    text = yaml.safe_dump(
        to_jsonable_python(value, fallback=str), default_flow_style=True, width=1000, allow_unicode=True
    )
    return str(text).removesuffix("...\n").strip()


def effect_of(model: type, name: str) -> str:
    """Return what a key does: the docstring after its field, or the sentences of the class's docstring that define it, or else
    that name it; of a class whose docstring names no key, its summary.
    """
    for cls in model.__mro__:
        if (text := _field_docstrings(cls).get(name)) is not None:
            return text
    statements = [text for cls in model.__mro__ for text in _statements(cls.__dict__.get("__doc__") or "")]
    for pattern in (rf"(`\w+`(, | and |, and )?(\([^)]*\))?)*`{name}`", rf".*`{name}[`:]"):
        if found := [text for text in statements if re.match(pattern, text)]:
            return re.sub(rf"^`{name}`: (\w)", lambda match: match[1].upper(), found[0])
    names_a_key = re.search(rf"`({'|'.join(_fields(model))})\b", model.__doc__ or "")
    return "" if names_a_key else summary(model)


def summary(model: type) -> str:
    """Return the first sentence of a class's docstring that describes the class and not one of its keys."""
    first = next(iter(_statements(model.__dict__.get("__doc__") or "")), "")
    return "" if first.startswith("`") else first


def _statements(docstring: str) -> Iterator[str]:
    """Yield the sentences of a docstring. A list item, and a part that defines another key, is a statement of its own."""
    for block in re.split(r"\n\s*\n|\n(?=- )", inspect.cleandoc(docstring)):
        text = " ".join(block.split()).removeprefix("- ")
        for part in re.split(r"(?<=\.) (?=[A-Z`])|(?<=;) (?=`\w+`)", text):
            yield part.rstrip(";")


@cache
def _field_docstrings(model: type) -> dict[str, str]:
    """Return the docstrings that follow fields in the source of a class."""
    if not model.__module__.startswith("ratchet."):
        return {}
    file = Path(inspect.getfile(model))
    source = griffe.visit(model.__module__, filepath=file, code=file.read_text(encoding="utf-8"))
    members = source[model.__qualname__].members.items()
    return {
        name: " ".join(each.docstring.value.split()) for name, each in members if each.is_attribute and each.docstring
    }


def params_models() -> dict[str, type]:
    """Return the configuration class of each section of `params.yaml`."""
    from ratchet.components.datasets import stage_params
    from ratchet.components.datasets.versioning.build_request import RolloutParams
    from ratchet.components.rewards.calibration.calibration_learning import CalibrationConfig
    from ratchet.components.rewards.preferences.pair_building import PairConfig
    from ratchet.components.rewards.reward_config import RewardConfig

    return {
        "data": RolloutParams,
        "score": RewardConfig,
        "calibration": CalibrationConfig,
        "quality": stage_params.QualityParams,
        "duplicates": stage_params.DuplicatesParams,
        "rank": stage_params.RankParams,
        "pairs": PairConfig,
        "export": stage_params.ExportParams,
        "gate": stage_params.GateParams,
    }


def params_page() -> str:
    """Return the page of every key of `params.yaml`."""
    text = PARAMS.read_text(encoding="utf-8")
    comments, values = yaml_comments(text), yaml.safe_load(text)
    parts = [PARAMS_INTRODUCTION]
    for name, model in params_models().items():
        rows = []
        for path, key in params_keys(model):
            value = reduce(lambda section, part: (section or {}).get(part), path.split("."), values[name])
            default = key.default if value is None else value_text(value)
            rows.append((f"`{path}`", key.type, f"`{default}`", comments.get(f"{name}.{path}") or key.effect))
        parts.append(f"\n## `{name}`\n\n{comments.get(name, '')}\n\n" + table(KEY_COLUMNS, rows))
    return "".join(parts)


def params_keys(model: type, prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key of a section, those of inner sections by their whole path."""
    for key in keys_of(model):
        if key.sections:
            yield from params_keys(key.sections[0], f"{prefix}{key.name}.")
        else:
            yield prefix + key.name, key


def yaml_comments(text: str) -> dict[str, str]:
    """Return the comment of each key, by its path. A comment goes on in the lines that follow and hold nothing else."""
    comments: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines():
        content, _, comment = line.partition("#")
        if match := re.match(r"( *)(\w+):", content):
            path = [*path[: len(match[1]) // 2], match[2]]
            comments[".".join(path)] = comment.strip()
        elif path and comment and not content.strip() and content:
            comments[".".join(path)] += " " + comment.strip()
    return comments
