"""ImagePlan: what a simple Dockerfile does (COPY, WORKDIR, ENV, and RUN without installations), for a sandbox without an engine."""

import fnmatch
import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SYSTEM_FOLDERS = _names("usr bin sbin lib lib32 lib64 libx32 etc dev proc sys tmp var run boot")
HARBOR_FOLDERS = ("tests", "solution", "logs")
PLAIN_IMAGES = _names("ubuntu debian python buildpack-deps bash")
"""Images that hold nothing but system programs, of which the local sandbox has its own."""
INSTALLERS = _names(
    "apt apt-get apk yum dnf pip pip3 uv uvx npm npx yarn pnpm conda mamba cargo go gem curl wget useradd adduser git-lfs rustup "
    "nvm playwright"
)
IGNORED = _names("CMD ENTRYPOINT EXPOSE LABEL MAINTAINER STOPSIGNAL HEALTHCHECK USER ARG VOLUME")


class ImagePlan(msgspec.Struct):
    """How the local sandbox prepares a task without a Dockerfile. `steps`: files (content by absolute path) and commands, in order.

    `problem`: why an engine must build the image; empty if none must. `workdir` is absolute.
    """

    workdir: str = "/workspace"
    env: dict[str, str] = {}
    steps: list[dict[str, bytes] | str] = []
    problem: str = ""

    @classmethod
    def read(cls, text: str, context: Mapping[str, bytes]) -> "ImagePlan":
        """Read a Dockerfile with the files of its context."""
        plan = cls()
        for instruction in read_instructions(text):
            name, _, rest = instruction.partition(" ")
            try:
                plan._apply(name.upper(), rest.strip(), context)
            except ValueError as error:
                plan.problem = plan.problem or " ".join(f"{instruction} ({error})".split())[:160]
        return plan

    def _apply(self, name: str, rest: str, context: Mapping[str, bytes]) -> None:
        if name in ("WORKDIR", "ENV", "COPY", "ADD", "FROM") and ("$" in rest or "<<" in rest):
            raise ValueError("variables and here-documents")
        if name == "FROM":
            image = rest.split("/")[-1].split(":")[0]
            if image not in PLAIN_IMAGES or self.steps:
                raise ValueError("its image has more than system programs")
        elif name == "WORKDIR":
            self.workdir = posixpath.normpath(posixpath.join(self.workdir, _words(rest)[0]))
        elif name == "ENV":
            words = _words(rest)
            pairs = (
                [word.partition("=") for word in words] if "=" in words[0] else [(words[0], "=", " ".join(words[1:]))]
            )
            self.env = {**self.env, **{key: value for key, _, value in pairs}}
        elif name in ("COPY", "ADD"):
            self.steps.append(self._copied(_words(rest), context))
        elif name == "RUN":
            if needed := installers_in(rest):
                raise ValueError(f"{needed[0]} installs")
            command = rest
            with suppress(ValueError):  # `[ -d /app ] || mkdir /app` is no list of words
                command = shlex.join(_words(rest)) if rest.startswith("[") else rest
            self.steps.append(f"{self.shell_prefix()}{command}")
        elif name not in IGNORED:
            raise ValueError("this instruction")

    def _copied(self, words: list[str], context: Mapping[str, bytes]) -> dict[str, bytes]:
        if any(word.startswith("--from") or "://" in word or ".tar" in word for word in words):
            raise ValueError("it copies from elsewhere")
        *sources, target = [word for word in words if not word.startswith("--")]
        folder = posixpath.join(self.workdir, target)
        files: dict[str, bytes] = {}
        for source in sources:
            pattern = posixpath.normpath(source.lstrip("/") or ".")
            below = {
                path: path if pattern == "." else path[len(pattern) + 1 :]
                for path in context
                if pattern == "." or path.startswith(f"{pattern}/")
            }
            depth = pattern.count("/")  # in Docker an asterisk matches no slash
            matching = [path for path in context if path.count("/") == depth and fnmatch.fnmatchcase(path, pattern)]
            if not below and not matching:
                raise ValueError(f"the context has no {source}")
            to_folder = target.endswith("/") or len(sources) > 1 or len(matching) > 1 or target in (".", "..")
            files |= {posixpath.normpath(f"{folder}/{rest}"): context[path] for path, rest in below.items()}
            for path in matching:
                name = f"{folder}/{posixpath.basename(path)}" if to_folder or folder == self.workdir else folder
                files[posixpath.normpath(name)] = context[path]
        return files

    def shell_prefix(self) -> str:
        """Return the start of a command line that sets the variables and the folder of the image."""
        exports = "".join(f"export {key}={shlex.quote(value)}; " for key, value in self.env.items())
        return f"{exports}cd {shlex.quote(self.workdir)} && "

    def links(self, texts: Iterable[str], first: str) -> dict[str, str]:
        """Return where folders of the image are in the sandbox, by path: `first`, the agent's, and those of the root that the
        plan and `texts` name.
        """
        commands = [step for step in self.steps if isinstance(step, str)]
        paths = [path for step in self.steps if isinstance(step, dict) for path in step]
        named = [
            f"/{name}" for text in (*texts, *commands) for name in re.findall(r"(?<![\w./:\-])/([A-Za-z]\w*)/\w", text)
        ]
        others = {top_folder(path) for path in (self.workdir, *paths, *named)} | set(HARBOR_FOLDERS)
        names = sorted(others - SYSTEM_FOLDERS - {first.strip("/"), "workspace", ""})
        return {first: "/workspace"} | {f"/{name}": f"/tmp/harbor/{name}" for name in names}


def read_instructions(text: str) -> list[str]:
    """Return the instructions of a Dockerfile, each as one line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return [line.strip() for line in joined.split("\n") if line.strip()]


def _words(text: str) -> list[str]:
    words = [str(word) for word in json.loads(text)] if text.startswith("[") else shlex.split(text)
    if not words:
        raise ValueError("it is empty")
    return words


def installers_in(script: str) -> list[str]:
    """Return the programs of a shell script that fetch software."""
    code = re.sub(r"(?m)^\s*#.*$", "", script)
    return [word for word in re.findall(r"(?<![\w./-])[a-z][\w-]*", code) if word in INSTALLERS]


def top_folder(path: str) -> str:
    """Return the first name of an absolute path."""
    return posixpath.normpath(path).lstrip("/").partition("/")[0]
