"""API views of records: pure functions of a trajectory and its scores."""

import math
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple

from ratchet.components.core import ToolResult
from ratchet.components.rewards.annotation_records import WHOLE, Label
from ratchet.components.rewards.episode_score import EpisodeScore, Explanation
from ratchet.components.rewards.score_table import ScoreColumnsBuilder
from ratchet.components.trajectories.trajectory import Trajectory, Turn

from . import api_models as api
from .clean_texts import as_json, clean_text

SUMMARY = 400
"""Characters of a turn's summary in a group."""
PARTS = ("outcome", "process", "efficiency")
MAX_EQUAL_TURNS = 250_000
"""Pairs of equal turns of two attempts beyond which they are aligned by position: loops of a thousand turns take minutes."""


class EpisodeRewards(NamedTuple):
    """Scores of one episode. `rows`: (turn, step, scorer) to score, of the table of scores or, unless `recorded`,
    computed now. `computed`: scores with their reasons by today's rules; None where the domain is unknown.
    """

    rows: dict[tuple[int, int, str], float | None]
    version: str
    recorded: bool
    computed: EpisodeScore | None
    labels: Sequence[Label] = ()

    def step_scores(self, turn: int, step: int) -> list[api.ScoreView]:
        """Return the scores of a step, or with `step` -1 those of a turn, and what people said."""
        here = (note for note in self._notes() if (note.turn, note.step) == (turn, step))
        notes: dict[tuple[str, str], Explanation] = {(note.layer, note.line): note for note in here}
        layers = self.computed.layers if self.computed else {}
        views = []
        for (of_turn, of_step, name), value in self.rows.items():
            if (of_turn, of_step) == (turn, step) and name != "process":
                layer, scorer = scorer_layer(name)
                note = notes.pop((layer, scorer), None)
                why = note.why if note and note.score == value else None
                source = ", ".join(layers[layer].sources) if layer in layers else ""
                views.append(api.ScoreView(layer=layer, scorer=scorer, score=value, why=why, source=source or None))
        # Notes without a score of their own: hacks, and scores that were left out.
        views += [
            api.ScoreView(layer=note.layer, scorer=note.line, score=note.score, why=note.why, source=None)
            for note in notes.values()
        ]
        for label in self.labels:
            if (label.turn, label.step) == (turn, step):
                own = {"score": label.value, "why": label.comment or None, "source": label.annotator}
                views.append(api.ScoreView(layer="people", scorer=label.line, **own))
        return views

    def value(self, scorer: str, turn: int = WHOLE, step: int = WHOLE) -> float | None:
        """Return one score; None where there is none."""
        return self.rows.get((turn, step, scorer))

    def summary(self) -> api.ScoreSummary | None:
        """Return the scores of the whole episode; None without any."""
        if not self.rows:
            return None
        computed = self.computed.layers if self.computed else {}
        names = [scorer[6:] for turn, _, scorer in self.rows if turn == WHOLE and scorer.startswith("layer.")]
        layers = {
            name: api.LayerSummary(
                score=self.value(f"layer.{name}"),
                counted=computed[name].counted if name in computed else True,
                sources=computed[name].sources if name in computed else [],
            )
            for name in names
        }
        parts = {part: self.value(part) for part in ("total", *PARTS)}
        return api.ScoreSummary(**parts, layers=layers, version=self.version, recorded=self.recorded)

    def findings(self) -> list[api.HackFinding]:
        """Return the hacks that were found."""
        return [
            api.HackFinding(kind=note.line, why=note.why, turn=note.turn, step=note.step)
            for note in self._notes()
            if note.layer == "guards"
        ]

    def _notes(self) -> list[Explanation]:
        return self.computed.explanations if self.computed else []


def score_rows(score: EpisodeScore) -> dict[tuple[int, int, str], float | None]:
    """Return computed scores as rows of a table of scores. Raises OverflowError for a turn number beyond 32 bits."""
    builder = ScoreColumnsBuilder()
    builder.add(score)
    columns = builder.columns()
    places = zip(columns.turn.tolist(), columns.step.tolist(), columns.scorer.tolist(), strict=True)
    values = (None if math.isnan(value) else value for value in columns.score.tolist())
    return {
        (turn, step, columns.scorers[name]): value for (turn, step, name), value in zip(places, values, strict=True)
    }


def scorer_layer(scorer: str) -> tuple[str, str]:
    """Return the layer of a scorer, and its name within it."""
    layer, _, name = scorer.partition(".")
    return (layer, name) if layer in ("judge", "learned", "verifiable", "layer") and name else ("rules", scorer)


def episode_view(
    record: Trajectory, row: api.EpisodeRow, rewards: EpisodeRewards, attempts: list[str], damaged: str | None = None
) -> api.EpisodeAnswer:
    """Return an episode without its turns."""
    messages = [
        api.MessageView(
            **fields_of(message, "role", "content"), length=len(message.content), images=list(message.blobs)
        )
        for message in record.messages
    ]
    return api.EpisodeAnswer(
        **fields_of(row, *api.EpisodeKey.model_fields),
        **fields_of(record, "task", "agent", "outcome", "failure", "provenance"),
        attempts=attempts,
        scores=rewards.summary(),
        findings=rewards.findings(),
        damaged=damaged,
        messages=messages,
    )


def damaged_view(row: api.EpisodeRow, damage: str) -> api.EpisodeAnswer:
    """Return what is known of an episode whose record cannot be read."""
    task = api.TaskSummary(task_id=row.task_id, kind=row.kind)
    agent = api.AgentSummary(name=row.agent, policy_version=row.policy_version)
    return api.EpisodeAnswer(**fields_of(row, *api.EpisodeKey.model_fields), task=task, agent=agent, damaged=damage)


def turn_view(turn: Turn, rewards: EpisodeRewards) -> api.TurnView:
    """Return a turn with its rewards."""
    results = {result.call_id: result for result in turn.results}
    # `call_seconds` has an entry per executed call: where some were not executed, whose they are is unknown.
    seconds = turn.call_seconds if turn.call_seconds and len(turn.call_seconds) == len(turn.calls) else ()
    steps = [
        api.StepView(
            **fields_of(call, "call_id", "tool", "arguments", "raw", "parse_error"),
            result=_result_view(results.get(call.call_id)),
            seconds=seconds[number] if seconds else None,
            total=rewards.value("process", turn.index, number),
            scores=rewards.step_scores(turn.index, number),
        )
        for number, call in enumerate(turn.calls)
    ]
    return api.TurnView(
        **fields_of(turn, "index", "agent_id", "text", "thought", "env_reward", "stop_reason", "usage", "seconds"),
        steps=steps,
        total=rewards.value("process", turn.index, WHOLE),
        scores=rewards.step_scores(turn.index, WHOLE),
    )


def _result_view(result: ToolResult | None) -> api.ResultView | None:
    if result is None:
        return None
    own = fields_of(result, "content", "exit_code", "error", "truncated")
    return api.ResultView(**own, length=len(result.content), image=result.blob)


def fields_of(source: object, *names: str) -> dict[str, Any]:
    """Return some attributes by their names."""
    return {name: getattr(source, name) for name in names}


def align_turns(attempts: Sequence[Trajectory], rewards: Sequence[EpisodeRewards]) -> list[api.AlignedRow]:
    """Align the turns of each attempt with those of the first: equal turns in order, and between them by position."""

    def blocks(own: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
        counts = Counter(own)
        if sum(counts[text] for text in texts[0]) > MAX_EQUAL_TURNS:
            return [("replace", 0, len(texts[0]), 0, len(own))]
        return SequenceMatcher(None, texts[0], own, autojunk=False).get_opcodes()

    texts = [[_turn_summary(turn) for turn in attempt.turns] for attempt in attempts]
    # Per attempt, the turns that belong before turn n of the first attempt, and the turn at it.
    before: list[list[list[int]]] = [[[] for _ in attempts] for _ in range(len(texts[0]) + 1)]
    at: list[list[int | None]] = [[number, *([None] * (len(attempts) - 1))] for number in range(len(texts[0]))]
    for attempt, own in enumerate(texts[1:], start=1):
        for _, begin, end, own_begin, own_end in blocks(own):
            for number, place in zip_longest(range(begin, end), range(own_begin, own_end)):
                if number is not None:
                    at[number][attempt] = place
                elif place is not None:
                    before[end][attempt].append(place)
    rows: list[Sequence[int | None]] = []
    for number, additional in enumerate(before):
        rows += [*zip_longest(*additional), *at[number : number + 1]]
    aligned = []
    for places in rows:
        shown = [None if place is None else own[place] for place, own in zip(places, texts, strict=True)]
        cells = [
            None if place is None else _cell(attempt.turns[place], place, text or "", score, same=text == shown[0])
            for place, attempt, text, score in zip(places, attempts, shown, rewards, strict=True)
        ]
        aligned.append(api.AlignedRow(differs=len(set(shown)) > 1, cells=cells))
    return aligned


def _cell(turn: Turn, place: int, text: str, rewards: EpisodeRewards, *, same: bool) -> api.AlignedCell:
    values = [rewards.value("process", turn.index, step) for step in range(-1, len(turn.calls))]
    errors = [result.error or result.exit_code for result in turn.results]
    return api.AlignedCell(
        turn=place,
        tools=", ".join(call.tool for call in turn.calls),
        summary=text[:SUMMARY],
        reward=min((value for value in values if value is not None), default=None),
        failed=any(errors) or any(call.parse_error for call in turn.calls),
        same=same,
    )


def _turn_summary(turn: Turn) -> str:
    """Return what a turn did: its calls, or else its text."""
    calls = [
        f"{call.tool} {call.raw if call.parse_error else as_json(call.arguments, sort_keys=True)}"
        for call in turn.calls
    ]
    return clean_text("; ".join(calls) or turn.text)
