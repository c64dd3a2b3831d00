"""Home, where local state lives, and the clone that it stands beside."""

from pathlib import Path

from components.protocol import ConfigurationError
from components.protocol.home import home

__all__ = ["PARAMS", "folder", "home", "parameters", "require_clone"]
PARAMS = Path("params.yaml")


def folder(*parts: str) -> Path:
    """A folder beneath `home()`, made where it is missing."""
    path = home().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def parameters() -> Path | None:
    """`params.yaml` where it stands: what is done by hand is done as the build does it."""
    return PARAMS if PARAMS.is_file() else None


def require_clone() -> None:
    """Raises ConfigurationError unless the working directory is the root of a clone: nights and their data stand beside it."""
    here = Path.cwd()
    if (here / "dvc.yaml").is_file():
        return
    above = next((each for each in here.parents if (each / "dvc.yaml").is_file()), None)
    place = str(above) if above else "your clone of the repository, where dvc.yaml stands"
    raise ConfigurationError(f"{here} is not the root of a clone; run this command in {place}")
