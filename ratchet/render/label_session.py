"""Ask an annotator for labels in the terminal, one step after another. Each answer is saved at once.

Judgements and the outcome of the episode are hidden: a label that repeats them would measure nothing.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.components.core import ToolCall, ToolResult
from ratchet.components.core.files import append_json_lines
from ratchet.components.rewards.annotation_records import Label
from ratchet.components.rewards.human_labels.label_selection import LabelChoice
from ratchet.components.trajectories.terminal_rendering import escape_terminal, single_line
from ratchet.components.trajectories.trajectory import Trajectory, Turn

from .terminal import print_drawing, print_text

CTRL_D = b"\x04"
"""Byte of Ctrl-D."""
ESCAPE = b"\x1b"


def read_key() -> str:
    """Wait for a key and return it in lower case; empty at the end of input. Without a terminal, return the first
    letter of the next line of stdin.

    Ctrl-C raises KeyboardInterrupt.
    """
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return (line.strip() or " ")[0].lower() if line else ""
    pressed = _read_byte(sys.stdin.fileno())
    return "" if pressed in (b"", CTRL_D) else pressed.decode(errors="replace").lower()


def _read_byte(terminal: int) -> bytes:
    """Read one byte as it is typed. TCSANOW keeps what was typed ahead."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        pressed = os.read(terminal, 1)
        if pressed == ESCAPE:
            _skip_escape_sequence(terminal)
        return pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _skip_escape_sequence(terminal: int) -> None:
    """Discard the rest of an escape sequence, such as an arrow key: it ends with a letter or ~ after [ or O."""
    import select

    while select.select([terminal], [], [], 0)[0]:
        byte = os.read(terminal, 1)
        if not byte or (byte not in b"[O" and 0x40 <= byte[0] <= 0x7E):
            return


def read_line(prompt: str) -> str:
    """Return a line of text; empty at the end of input."""
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


LABEL_VALUES = {"y": 1.0, "h": 0.5, "n": 0.0}
KEYS_HELP = "y right   h half right   n wrong   s skip   u back   c with a comment   f show in full   q quit (answers are saved)"
MAX_LINES_SHOWN = 24
"""Lines shown of a text, unless all of it is requested."""
EARLIER_STEPS_SHOWN = 5
"""Earlier steps shown, one line each."""


class LabelSession:
    """Asks for labels of the chosen steps and saves each in `file` at once; `labels` counts the saved ones.

    `trajectories`: by the ids in `choices`. `about`: criterion of the labels.
    """

    def __init__(
        self,
        trajectories: Mapping[str, Trajectory],
        choices: Sequence[LabelChoice],
        file: Path,
        annotator: str,
        about: str,
    ) -> None:
        self._trajectories = trajectories
        self._choices = choices
        self._file = file
        self._annotator = annotator
        self._line = about
        self.labels = 0

    def run(self) -> None:
        """Ask until all steps are labelled, the annotator presses `q`, or the input ends. Ctrl-C loses no answer."""
        print_text(KEYS_HELP)
        place = 0
        while place < len(self._choices):
            self._show(place)
            move = self._ask(place)
            if move is None:
                return
            place = max(0, place + move)

    def _ask(self, place: int) -> int | None:
        """Return how many steps to move; None to end."""
        comment = ""
        while True:
            pressed = read_key()
            if pressed in LABEL_VALUES:
                self._keep(place, LABEL_VALUES[pressed], comment)
                return 1
            if pressed in ("s", "u"):
                return 1 if pressed == "s" else -1
            if pressed in ("", "q"):
                return None
            if pressed == "c":
                comment = read_line("comment: ")
            elif pressed == "f":
                self._show(place, full=True)
            else:
                print_text(KEYS_HELP)

    def _keep(self, place: int, value: float, comment: str) -> None:
        candidate = self._choices[place].candidate
        label = Label.now(
            self._trajectories[candidate.episode_id],
            turn=candidate.turn,
            step=candidate.step,
            line=self._line,
            value=value,
            annotator=self._annotator,
            comment=comment,
        )
        append_json_lines(self._file, [label])
        self.labels += 1

    def _show(self, place: int, *, full: bool = False) -> None:
        candidate = self._choices[place].candidate
        trajectory = self._trajectories[candidate.episode_id]
        number = f"{place + 1} of {len(self._choices)}"
        print_drawing(step_panel(trajectory, candidate.turn, candidate.step, f"{number}: {self._line}", full=full))


def step_panel(trajectory: Trajectory, turn: int, step: int, title: str, *, full: bool = False) -> object:
    """Return a step as a rich panel: task, earlier steps, thought, call and result. `full`: texts uncut."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.rule import Rule
    from rich.text import Text

    at = next(turn_record for turn_record in trajectory.turns if turn_record.index == turn)
    call = at.calls[step]
    parts: list[object] = [Text(shorten_text(trajectory.task.description, full), style="bold")]
    if earlier := _earlier_steps(trajectory, turn, step):
        parts += [
            Rule("before", style="dim"),
            Text("\n".join(earlier if full else earlier[-EARLIER_STEPS_SHOWN:]), style="dim"),
        ]
    parts += [Rule(f"step {turn}.{step}", style="dim")]
    reply = (at.thought or "") + ("\n" if at.thought and at.text and at.text != at.thought else "")
    reply += at.text if at.text != at.thought else ""
    if step == 0 and reply.strip():
        parts.append(Text(shorten_text(reply, full), style="italic"))
    parts.append(Text(shorten_text(_call_text(call), full), style="cyan"))
    result = _result_of_call(at, call)
    parts.append(Rule("result", style="dim"))
    parts.append(Text("(nothing)" if result is None else shorten_text(_result_text(result), full)))
    return Panel(Group(*parts), title=Text(single_line(title)), title_align="left")  # type: ignore[arg-type]


def shorten_text(text: str, full: bool) -> str:
    """Return a text that is safe on a terminal; of a long one, unless `full`, only beginning and end."""
    lines = escape_terminal(text.rstrip("\n")).split("\n")
    if full or len(lines) <= MAX_LINES_SHOWN:
        return "\n".join(lines)
    head = MAX_LINES_SHOWN * 2 // 3
    return "\n".join(
        [
            *lines[:head],
            f"… {len(lines) - MAX_LINES_SHOWN:,} lines left out (f shows them) …",
            *lines[head - MAX_LINES_SHOWN :],
        ]
    )


def _earlier_steps(trajectory: Trajectory, turn: int, step: int) -> list[str]:
    lines: list[str] = []
    for turn_record in trajectory.turns:
        for place, call in enumerate(turn_record.calls):
            if (turn_record.index, place) >= (turn, step):
                return lines
            result = _result_of_call(turn_record, call)
            answer = "" if result is None else f"  →  {single_line((result.error or result.content).strip(), 60)}"
            lines.append(f"{turn_record.index}.{place}  {single_line(_inline_call(call), 80)}{answer}")
    return lines


def _call_text(call: ToolCall) -> str:
    if call.parse_error is not None:
        return f"(unreadable: {call.parse_error})\n{call.raw}"
    return "\n".join([call.tool, *(f"  {name}: {value}" for name, value in call.arguments.items())])


def _inline_call(call: ToolCall) -> str:
    return (
        f"{call.tool}({', '.join(f'{name}={value}' for name, value in call.arguments.items())})"
        if call.tool
        else call.raw
    )


def _result_of_call(turn: Turn, call: ToolCall) -> ToolResult | None:
    return next((result for result in turn.results if result.call_id == call.call_id), None)


def _result_text(result: ToolResult) -> str:
    head = [f"exit {result.exit_code}"] if result.exit_code is not None else []
    head += [f"error: {result.error}"] if result.error is not None else []
    return "\n".join([*head, result.content])
