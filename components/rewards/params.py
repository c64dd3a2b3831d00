"""The parameters of a stage: one section of a YAML file."""

from pathlib import Path
from typing import TypeVar

import yaml

from components.protocol import ConfigurationError
from components.protocol.configuration import Configuration

Model = TypeVar("Model", bound=Configuration)


def load_section(model: type[Model], path: Path | None, section: str) -> Model:
    """The configuration in a section of a file; the defaults where there is no file. Raises ConfigurationError."""
    if path is None:
        return model()
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or section not in values:
        known = ", ".join(map(str, values)) if isinstance(values, dict) else "none"
        raise ConfigurationError(f"{path} has no section '{section}'; its sections: {known}")
    try:
        return model.load(values[section] or {})
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}, section {section}: {error}") from error
