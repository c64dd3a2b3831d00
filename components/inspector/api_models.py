"""Answers of the inspector's API, except those of the review desk.

`python -m ratchet.components.inspector.app` prints the OpenAPI document, from which the front end's types are made.

Contract: GET alone; JSON, snake_case; errors are `{"error": "one line"}`. null is unknown, never zero. Texts are as the agent
wrote them, lone surrogates replaced: the page must show them inert. Lists are pages of `offset` and `limit` with the
`total`. `row_id` is `SPLIT-NUMBER`, counted from 0 within its split. Where a model is filled from a record or a table's
reader, its fields have the names there, and their types clean the texts.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator

from ratchet.components.datasets.lineage.build_changes import EpisodeVerdict

from .clean_texts import clean_line, clean_text, clean_value, cut_text

Item = TypeVar("Item")
Score = float | None
NodeKind = Literal["model", "dataset", "row", "night", "episode"]
RunMode = Literal["read", "review"]
Text = Annotated[str, BeforeValidator(clean_text)]
Beginning = Annotated[str, BeforeValidator(cut_text)]
Marked = Annotated[str, BeforeValidator(clean_value)]
Line = Annotated[str, BeforeValidator(clean_line)]
Values = Annotated[dict[str, Any], BeforeValidator(clean_value)]


class View(BaseModel, from_attributes=True, json_schema_serialization_defaults_required=True):
    """A part of an answer. It can be read from an object with attributes of the same names; defaults are sent, too."""


class Page(View, Generic[Item]):
    """A page of a list with `total` items."""

    total: int
    items: list[Item]


class ApiError(View):
    """An error, in one line."""

    error: str


class ValueCount(View):
    """A value and how often it occurs."""

    value: str
    count: int


class IndexProgress(View):
    """Bytes of the sources, and those of them that are indexed. `error`: reason why the index stands still."""

    total_bytes: int
    indexed_bytes: int
    running: bool
    error: str | None


class HomeAnswer(View):
    """The served data. `clone`: true for the nights and the build of a clone, false for files named on the command line. `damage`:
    one line for each damaged shard or manifest.
    """

    name: str
    mode: RunMode
    clone: bool
    damage: list[str]
    index: IndexProgress


class EpisodeKey(View):
    """Fields of an episode, both in lists and in its own view. `tokens`: number of sampled tokens."""

    episode_id: str
    group_id: str
    attempt: int
    turns: int
    tokens: int | None
    seconds: float | None
    source: str


class EpisodeRow(EpisodeKey):
    """One episode of a list. `failure`: `policy` or `infrastructure`; `cause`: how it ended; `findings`: kinds of hacks;
    `damaged`: the record cannot be read or is not what its hash says.
    """

    task_id: str
    kind: str
    agent: str
    policy_version: str
    success: bool | None
    failure: str | None
    cause: str | None
    reward: Score
    findings: list[str]
    damaged: bool


class EpisodesAnswer(Page[EpisodeRow]):
    """Episodes that fit all filters. `facets`: values among them by `source`, `kind`, `outcome`, `cause`, `finding`,
    `reward`; a facet ignores its own filter. `outcome`: success, failure, unknown; `reward`: unscored, or the lower bound
    of a tenth, such as 0.8.
    """

    facets: dict[str, list[ValueCount]]


class TaskSummary(View):
    """The task of an episode."""

    task_id: Text
    taskset: Text = ""
    family: Text = ""
    kind: Text
    role: Text = ""
    description: Text = ""


class AgentSummary(View):
    """The agent of an episode."""

    name: Text
    policy_version: Text
    sampling: Values = {}


class OutcomeSummary(View):
    """The outcome of an episode."""

    success: bool | None = None
    tests_passed: int | None = None
    tests_total: int | None = None
    reason: Text = ""


class FailureSummary(View):
    """Why an episode has no ordinary end."""

    kind: Text
    type: Text
    message: Text


class LayerSummary(View):
    """The score that one layer alone would give; `counted`: it is part of the total. `sources`: who gave it."""

    score: Score
    counted: bool
    sources: list[str]


class ScoreSummary(View):
    """Scores of the whole episode. `recorded`: from the table of scores of `version`; else computed now."""

    total: Score
    outcome: Score
    process: Score
    efficiency: Score
    layers: dict[str, LayerSummary]
    version: str
    recorded: bool


class HackFinding(View):
    """A kind of hack that was found, and why. `turn`, `step`: -1 for the whole episode or turn."""

    kind: str
    why: Line
    turn: int
    step: int


class ProvenanceSummary(View):
    """When the record was made, and where its commands ran."""

    collected_at: str | None = None
    where: str | None = None


class MessageView(View):
    """A message before the first turn, up to TEXT_LIMIT characters of `length`. `images`: names for /api/blobs."""

    role: Text
    content: Beginning
    length: int
    images: list[str]


class EpisodeAnswer(EpisodeKey):
    """An episode without its turns. `attempts`: the episodes of its group, in order; `damaged`: the damage, in one line."""

    attempts: list[str] = []
    task: TaskSummary
    agent: AgentSummary
    outcome: OutcomeSummary = OutcomeSummary()
    failure: FailureSummary | None = None
    scores: ScoreSummary | None = None
    findings: list[HackFinding] = []
    damaged: str | None
    provenance: ProvenanceSummary = ProvenanceSummary()
    messages: list[MessageView] = []


class ScoreView(View):
    """One score of a step, turn or episode. `source`: who gave it, for a judge, model or person."""

    layer: str
    scorer: str
    score: Score
    why: Line | None
    source: Line | None


class ResultView(View):
    """A result, up to TEXT_LIMIT characters of `length`. `image`: name for /api/blobs."""

    content: Beginning
    length: int
    exit_code: int | None
    error: Line | None
    truncated: bool
    image: str | None


class StepView(View):
    """A call with its result. `total`: its process reward."""

    call_id: Text
    tool: Text
    arguments: Values
    raw: Marked
    parse_error: Line | None
    result: ResultView | None
    seconds: float | None
    total: Score
    scores: list[ScoreView]


class UsageView(View):
    """Token counts of a turn."""

    prompt_tokens: int | None
    completion_tokens: int | None


class TurnView(View):
    """A turn. `total` and `scores`: of the whole turn, as for a judged turn without calls."""

    index: int
    agent_id: Text
    text: Marked
    thought: Marked | None
    steps: list[StepView]
    env_reward: float | None
    stop_reason: Line | None
    usage: UsageView | None
    seconds: float | None
    total: Score
    scores: list[ScoreView]


class ContentAnswer(View):
    """A piece of a result, in characters."""

    text: str


class AlignedCell(View):
    """One turn of one attempt. `turn`: its place, from 0; `same`: equal to that of the first attempt."""

    turn: int
    tools: Text
    summary: str
    reward: Score
    failed: bool
    same: bool


class AlignedRow(View):
    """Turns that correspond to each other, one per attempt; null where an attempt has none."""

    differs: bool
    cells: list[AlignedCell | None]


class AttemptSummary(EpisodeRow):
    """One attempt of a group, with the parts of its reward."""

    scores: dict[str, Score]


class GroupAnswer(View):
    """The attempts at one task by one policy version, up to MAX_ATTEMPTS, with their turns aligned."""

    task: TaskSummary
    attempts: list[AttemptSummary]
    rows: list[AlignedRow]


class RowReference(View):
    """A row of a dataset."""

    dataset: str
    row_id: str
    split: str
    reason: str | None


class EpisodeRowsAnswer(View):
    """The rows made of an episode."""

    items: list[RowReference]


class RowAnswer(RowReference):
    """A row of a dataset. `advantage`: that of its first attempt with tokens; `note`: what its tokens are, or why there are
    none.
    """

    task_id: str
    weight: float | None
    advantage: float | None
    episode_ids: list[str]
    note: str | None


class TokenView(View):
    """A token as trained. `mask`: it has a label; `logprob`: natural log-probability when it was sampled."""

    text: str
    mask: bool
    weight: float | None
    advantage: float | None
    logprob: float | None


class DriftAnswer(View):
    """Drift of a row's tokens, in nats: `values` of the tokens with the numbers `places`, those that have a `logprob`. `mean`,
    `largest`: of their sizes.
    """

    places: list[int]
    values: list[float]
    mean: float
    largest: float
    note: str


class RankedRow(View):
    """An episode of the build and the decision about it."""

    episode_id: str
    task_id: str
    verdict: EpisodeVerdict
    gdi: float | None
    reason: str


class RankedAnswer(Page[RankedRow]):
    """Episodes of the build, best first; `counts` by verdict."""

    counts: list[ValueCount]


class LineageNode(View):
    """`id` of a row: `DATASET/ROW_ID`."""

    kind: NodeKind
    id: str
    label: str
    note: str | None = None


class LineageAnswer(View):
    """The sources of a node (`up`) and its derivatives (`down`), up to MAX_NODES each, and which of them are not known."""

    node: LineageNode | None = None
    up: list[LineageNode] = []
    down: list[LineageNode]
    unknown: list[str] = []


class LiveStep(View):
    """A step of the night; a running collection has `done` and `total` episodes. One that is `waiting` is of the latest
    finished night of the same scale and recipe, with its `seconds` there.
    """

    name: str
    state: Literal["done", "running", "waiting"]
    done: int | None = None
    total: int | None = None
    seconds: float | None = None


class LiveAnswer(View):
    """The running night, or the latest one; `begun` before its first step. `eta_seconds`: of the running collection alone."""

    night: str | None = None
    state: Literal["begun", "running", "finished", "failed", "interrupted"] | None = None
    eta_seconds: float | None = None
    note: str | None = None
    steps: list[LiveStep] = []
    causes: list[ValueCount] = []
    newest: list[EpisodeRow] = []
