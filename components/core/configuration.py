"""Base class of every configuration: frozen pydantic models that forbid unknown keys, with errors of one line."""

from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import pydantic

from .errors import ConfigurationError, suggest_name
from .files import InvalidYaml, load_yaml

Section = TypeVar("Section", bound="Configuration")

SHOWN_VALUE_LENGTH = 80
"""Maximum number of characters of a wrong value in an error message."""


class Configuration(pydantic.BaseModel):
    """Base class of every configuration. Frozen; an unknown key is an error that names the nearest valid key."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def load(cls, source: Path | dict[str, Any]) -> Self:
        """Load a YAML or JSON file, or a mapping. Raises ConfigurationError with a message of one line."""
        source_name = str(source) if isinstance(source, Path) else cls.__name__
        values = _read(source) if isinstance(source, Path) else source
        if not isinstance(values, dict):
            raise ConfigurationError(f"{source_name}: expected keys and values, found {type(values).__name__}")
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            raise ConfigurationError(f"{source_name}: {explain_validation_error(cls, error)}") from error


def read_section(path: Path | None, name: str, model: type[Section]) -> Section:
    """Load the top-level section `name` of a YAML file as a `model`; return its defaults where `path` is None.

    Raises ConfigurationError, also for a file without the section; the message names the file, the section and the key.
    """
    if path is None:
        return model()
    values = _read(path)
    if not isinstance(values, dict) or name not in values:
        sections = ", ".join(map(str, values)) if isinstance(values, dict) else ""
        raise ConfigurationError(f"{path} has no section '{name}'; its sections: {sections or 'none'}")
    try:
        return model.load(values[name] or {})
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}, section '{name}': {error}") from error


def _read(path: Path) -> Any:
    try:
        return load_yaml(path.read_bytes()) or {}
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; check the path") from error
    except InvalidYaml as error:
        raise ConfigurationError(f"{path} is {error}") from error


def explain_validation_error(model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> str:
    """Return the first error of a validation of `model` as one line, with the number of further errors. Unknown keys
    come before all other errors.
    """
    # A misspelt key is also a missing one: the message that names the misspelling comes first.
    first, *more = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        text = f"unknown key '{path}'{_suggest_key(model, first['loc'])}"
    elif first["type"] == "missing":
        text = f"key '{path}' is missing"
    else:
        message = first["msg"].removeprefix("Value error, ")
        text = f"key '{path}': {message} (found {_shorten(first.get('input'))})" if path else message
    return " ".join(text.split()) + (f"; and {len(more)} more" if more else "")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_VALUE_LENGTH else f"{text[: SHOWN_VALUE_LENGTH - 1]}…"


def _model_in(annotation: Any) -> type[pydantic.BaseModel] | None:
    """The pydantic model of a field, also where the field is optional; None where it holds no model."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, pydantic.BaseModel):
            return candidate
    return None


def _suggest_key(model: type[pydantic.BaseModel], loc: tuple[int | str, ...]) -> str:
    """Suggest the nearest field of the model that contains the unknown key at `loc`."""
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return ""
        model = inner
    fields = list(model.model_fields)
    hint = suggest_name(str(loc[-1]), fields, "", cutoff=0.5)
    return "; " + " ".join(filter(None, (hint, f"known keys: {', '.join(fields)}")))
