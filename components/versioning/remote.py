"""The remote: where data lies beside a clone. Local by default; S3 or another by one setting."""

import configparser
import os
from pathlib import Path

from components.protocol import ConfigurationError

from . import dvc

OVERRIDE = "ratchet-override"


def override(remote: str | None = None) -> str | None:
    """The remote to use instead of the configured one: given, or of RATCHET_DVC_REMOTE, or beneath RATCHET_HOME; else None."""
    given = remote or os.environ.get("RATCHET_DVC_REMOTE")
    home = os.environ.get("RATCHET_HOME")
    if given is None and home:
        given = str(Path(home) / "dvc-remote")
    if given is None or "://" in given:
        return given
    return str(Path(given).expanduser().absolute())


def configured(root: Path) -> str:
    """The default remote's URL; a relative path becomes absolute. Raises ConfigurationError where there is none."""
    found: dict[str, str] = {}
    for name in ("config", "config.local"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(_dedented(root / ".dvc" / name))
        for section in parser.sections():
            found |= {f"{section}.{key}": value for key, value in parser[section].items()}
    default = found.get("core.remote")
    url = found.get(f"'remote \"{default}\"'.url")
    if url is None:
        raise ConfigurationError("no DVC remote is configured; `dvc remote add --default local PATH`")
    return url if "://" in url else str((root / ".dvc" / url).resolve())


def _dedented(path: Path) -> str:
    """DVC indents its settings, which configparser takes for continued lines."""
    if not path.is_file():
        return ""
    return "\n".join(line.strip() for line in path.read_text(encoding="utf-8").splitlines())


def push(*, remote: str | None = None, root: Path = Path()) -> str:
    """Send the build's outputs and the sealed nights to the remote; its URL. Raises InfrastructureError with DVC's words."""
    url = override(remote)
    arguments = ["push", "--quiet"]
    if url is not None:
        dvc.run(["remote", "add", "--quiet", "--local", "--force", OVERRIDE, url], root)
        arguments += ["--remote", OVERRIDE]
    dvc.run(arguments, root)
    return url or configured(root)
