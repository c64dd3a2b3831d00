"""Configuration of a harness: a program that is the agent, while a policy of ours is the model behind it."""

import os
import re
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import Configuration
from ratchet.components.models.gateway.gateway_sessions import SessionLimits
from ratchet.components.sandboxes import SandboxConfig, resolve_backend
from ratchet.components.sandboxes.container_spec import check_mounts
from ratchet.components.sandboxes.linux_namespaces import SYSTEM_FOLDERS, bundled_python

PORT = 8377
"""Port of the gateway on a sandbox's loopback interface."""
JIT_MEMORY_MB = 256 << 10
"""Address space of JavaScript engines, which reserve far more than they use: the local sandbox limits that."""
PROFILES: dict[str, dict[str, Any]] = {
    "openai-sdk": {
        "command": ["python3", "$HOME/agent.py"],
        "files": {"$HOME/agent.py": Path(__file__).with_name("openai_sdk_agent.py")},
    },
    "mini-swe-agent": {
        "command": [
            "mini",
            "-y",
            "--exit-immediately",
            "-m",
            "openai/{model}",
            "-t",
            "{task}",
            "-o",
            "$HOME/traj.json",
        ],
        "env": {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_SILENT_STARTUP": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    },
    "opencode": {
        "memory_mb": JIT_MEMORY_MB,
        "command": ["opencode", "run", "--model", "ratchet/{model}", "--", "{task}"],
        "files": {
            "$HOME/.config/opencode/opencode.json": (
                '{"autoupdate": false, "share": "disabled", "permission": {"*": "allow"}, "small_model": "ratchet/{model}",'
                ' "provider": {"ratchet": {"npm": "@ai-sdk/openai-compatible", "name": "ratchet",'
                ' "options": {"baseURL": "{base_url}", "apiKey": "{key}"}, "models": {"{model}": {"name": "{model}"}}}}}'
            )
        },
        "env": {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    },
    "claude-code": {
        "memory_mb": JIT_MEMORY_MB,
        "command": ["claude", "-p", "--model", "{model}", "--dangerously-skip-permissions", "--", "{task}"],
        "env": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"},
    },
    "codex": {
        "memory_mb": JIT_MEMORY_MB,
        "command": [
            "codex",
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--",
            "{task}",
        ],
        "files": {
            "$HOME/.codex/config.toml": (
                'model = "{model}"\nmodel_provider = "ratchet"\n[model_providers.ratchet]\nname = "ratchet"\n'
                'base_url = "{base_url}"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
            )
        },
    },
}
"""Settings of known programs, which a configuration's own ones extend or replace."""


class HarnessConfig(Configuration):
    """A program that plays tasks. It runs in the task's workspace, in a sandbox whose only way out is the gateway.

    - `profile`: openai-sdk (a minimal agent that needs the package openai), mini-swe-agent, opencode, claude-code or codex;
      or give a `command`. In its arguments, in `files` and in `env` the words {task}, {model}, {base_url}, {root_url} and {key}
      are replaced; $HOME too.
    - `env`: variables beside OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.
      `files`: text by path, written before it starts.
    - `programs`: folders of this machine that it is installed in (SandboxConfig.programs); their
      `bin` and `.bin` come first in PATH.
    - `timeout`: seconds of one attempt, after which its work is graded as it stands. `limits`: of its session.
    - `memory_mb`, `pids`, `open_files`: limits of the sandbox it runs in, in place of the collection's.
    """

    profile: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    programs: tuple[Path, ...] = ()
    timeout: float = Field(600.0, gt=0)
    limits: SessionLimits = SessionLimits()
    memory_mb: int = Field(4096, ge=64)
    pids: int = Field(256, ge=4)
    open_files: int = Field(1024, ge=16)

    @model_validator(mode="after")
    def _check_profile(self) -> Self:
        if self.profile and self.profile not in PROFILES:
            raise ValueError(f"unknown profile '{self.profile}'; known: {', '.join(PROFILES)}; or give a command")
        if not self.profile and not self.command:
            raise ValueError("give a profile or a command")
        return self

    def sandbox(self, config: SandboxConfig) -> SandboxConfig:
        """Return a collection's sandbox with the programs and limits of the harness. Raises ConfigurationError for programs
        that could not start in it.
        """
        names = ("programs", "memory_mb", "pids", "open_files")
        values = {name: getattr(self, name) for name in names}
        for folder in self.programs:
            if not folder.is_dir():
                raise ConfigurationError(
                    f"`programs`: {folder.absolute()} is no folder of this machine; correct its path"
                )
        backend = resolve_backend(config.backend, config.image)
        if backend == "docker":
            check_mounts(self.programs)
        if backend == "local":
            self._check_local_programs()
            if "memory_mb" not in self.model_fields_set:
                values["memory_mb"] = PROFILES.get(self.profile, {}).get("memory_mb", self.memory_mb)
        return config.model_copy(update=values)

    def _check_local_programs(self) -> None:
        """Raise ConfigurationError for a folder that the local sandbox cannot show, or whose Python lies outside of it."""
        folders = [folder.absolute() for folder in self.programs]
        shown = [str(folder) for folder in (*SYSTEM_FOLDERS, *folders, bundled_python()) if folder]
        for folder in folders:
            # Commands of root run as another user.
            closed = (
                [each for each in (folder, *folder.parents) if not each.stat().st_mode & 1] if not os.geteuid() else []
            )
            if closed:
                raise ConfigurationError(
                    f"`programs`: other users cannot reach {folder}, because {closed[0]} is closed to them; put it elsewhere"
                )
            python = folder / "bin" / "python3"
            target = python.resolve()
            if python.is_symlink() and not any(target.is_relative_to(each) for each in shown):
                raise ConfigurationError(
                    f"`programs`: the Python of {folder} is {target}, which the sandbox does not show; name its folder "
                    "in `programs` too, or make the environment with a Python below /usr"
                )

    @property
    def name(self) -> str:
        """Name in records: the profile, or the command's first word."""
        return self.profile or Path(self.command[0]).name

    def job(self, words: dict[str, str]) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Return the command, the files and the variables for one attempt; `words`: the values of the words in braces."""
        profile = PROFILES.get(self.profile, {})
        files = {**profile.get("files", {}), **self.files}
        texts = {
            path: text.read_text(encoding="utf-8") if isinstance(text, Path) else _replace(text, words)
            for path, text in files.items()
        }
        env = {name: _replace(value, words) for name, value in {**profile.get("env", {}), **self.env}.items()}
        command = [_replace(argument, words) for argument in self.command or profile["command"]]
        return command, texts, env


def _replace(text: str, words: dict[str, str]) -> str:
    """Replace the known words only, in one pass: what replaces one may itself hold braces."""
    return re.sub(r"\{(\w+)\}", lambda match: words.get(match[1], match[0]), text)
