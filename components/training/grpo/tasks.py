"""What a run plays: the tasks of an exported prompt set, or all that its player knows."""

from pathlib import Path

import msgspec

from components.protocol import DataError, PlayableTask


class _PromptRow(msgspec.Struct, frozen=True):
    """The column of an exported GRPO row that training reads; its prompt is laid out anew by the environment."""

    task_id: str


def choose(known: list[PlayableTask], prompts: Path | None) -> list[PlayableTask]:
    """The tasks of the file, each once, in its order; all known ones without a file. Raises DataError with one line."""
    if prompts is None:
        return known
    decoder = msgspec.json.Decoder(_PromptRow)
    try:
        lines = prompts.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"prompt set {prompts} cannot be read: {error.strerror}; build the datasets first") from error
    by_id = {task.task_id: task for task in known}
    found: dict[str, PlayableTask] = {}
    for number, line in enumerate(lines, start=1):
        try:
            task_id = decoder.decode(line).task_id
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{prompts}, line {number}: not a GRPO row: {error}; export the dataset again") from error
        if task_id not in by_id:
            raise DataError(
                f"{prompts}, line {number}: the player does not know task '{task_id}'; "
                "set grpo.play.taskset to the taskset that the rows come from"
            )
        found[task_id] = by_id[task_id]
    if not found:
        raise DataError(f"{prompts} has no tasks: there is nothing to play; collect episodes of train tasks first")
    return list(found.values())
