"""A minimal agent over OpenAI's SDK: the task is the first message, and the model's calls are carried out in this folder.

Started by the harness profile `openai-sdk` inside a sandbox; it knows nothing of Ratchet but the variables of the harness.
The tools are those of ratchet/sandbox, so that a model that has learned them there can use them here.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from openai import OpenAI

TURNS = 20
TOOLS = json.loads(os.environ["RATCHET_TOOLS"])


def read_file(path: str) -> str:
    """Return a file's text."""
    return Path(path).read_text()


def edit_file(path: str, old: str, new: str) -> str:
    """Replace the only occurrence of `old`; an empty `old` writes the whole file."""
    text = Path(path).read_text() if old else ""
    if text.count(old) != 1 and old:
        return f"error: old occurs {text.count(old)} times in {path}"
    Path(path).write_text(text.replace(old, new) if old else new)
    return "ok"


def bash(command: str, timeout: float = 30) -> str:
    """Run a command."""
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=timeout, check=False)
    return (run.stdout + run.stderr)[:8000]


def grep(pattern: str, path: str = ".") -> str:
    """Search files."""
    lines = [
        f"{file}:{number}:{line}"
        for file in sorted(Path(path).rglob("*") if Path(path).is_dir() else [Path(path)])
        if file.is_file()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    return "\n".join(lines)[:8000]


def main() -> None:
    """Play the task."""
    client: Any = OpenAI(max_retries=1)
    known: dict[str, Any] = {"read_file": read_file, "edit_file": edit_file, "bash": bash, "grep": grep}
    messages: list[dict[str, Any]] = [{"role": "user", "content": os.environ["RATCHET_TASK"]}]
    for _ in range(TURNS):
        answer = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages, tools=TOOLS)
        reply = answer.choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return
        for call in reply.tool_calls:
            if call.function.name == "submit":
                return
            try:
                result = known[call.function.name](**json.loads(call.function.arguments))
            except Exception as error:
                result = f"error: {error}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    main()
