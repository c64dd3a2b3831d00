"""Routes of the review desk under /api/review. Everything is refused unless the server was started for a reviewer.

Judgements, outcomes, reasons of the selection and labels by others are hidden: a label that repeats them would measure
nothing. A dispute shows the labels to decide between.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, Field

from ratchet.components.core import DataError, ToolCall
from ratchet.components.rewards.annotation_records import WHOLE
from ratchet.components.rewards.human_labels.review_desk import QueuedItem, QueueName, ReviewDesk, ReviewItem
from ratchet.components.trajectories.trajectory import Trajectory, Turn

from .api_models import Line, Text, View
from .clean_texts import as_json, clean_text
from .episode_views import fields_of

MAX_TEXT = 16_384
"""Characters of a text; the view of the episode shows all of it."""
MAX_EPISODE_TEXT = 2_048
"""Characters of a text in a pair of whole episodes."""
EARLIER_STEPS = 20
"""Earlier steps listed, the last ones."""
EARLIER_TEXT = 2_048
"""Characters of a text of an earlier step."""


class ReviewQueue(BaseModel):
    """Number of items of a queue, and of those that the reviewer has labelled."""

    total: int
    labelled: int


class ReviewState(BaseModel):
    """The desk. `reviewer` is null where the inspector is read-only; there are no queues then."""

    reviewer: str | None
    queues: dict[QueueName, ReviewQueue]


class ReviewPlace(BaseModel):
    """The step, or the preference pair, that a reviewer labels."""

    item_id: str
    kind: Literal["step", "pair"]
    episode_id: str
    turn: int
    step: int


class ReviewEntry(ReviewPlace):
    """One item of a queue. `value`: the reviewer's label, null if not labelled."""

    value: float | None


class CutText(BaseModel):
    """A text or its beginning, and the number of characters of all of it."""

    text: str
    length: int


class ReviewCall(BaseModel):
    """A call and its result. `arguments`: as indented JSON, or the raw text of a call that cannot be parsed. `result` is
    null where there is none.
    """

    tool: Text
    arguments: CutText
    parse_error: Line | None
    result: CutText | None
    exit_code: int | None
    error: Line | None


class ReviewTurn(BaseModel):
    """A turn, or the part of it that is reviewed."""

    turn: int
    thought: CutText
    text: CutText
    calls: list[ReviewCall]


class ReviewSide(BaseModel):
    """The reviewed turns of one episode: one for a step or a message, all for a whole episode."""

    episode_id: str
    turns: list[ReviewTurn]


class OtherLabel(View):
    """A label of a dispute, without its annotator."""

    value: float
    comment: Text


class ReviewDetail(ReviewPlace):
    """An item in full. `sides`: one for a step; for a pair the chosen one, then the rejected one. `earlier`: calls before
    it, with texts of up to EARLIER_TEXT characters, and `earlier_left_out`: how many before those. `others` is empty except in
    the queue `disputes`.
    """

    task: CutText
    earlier: list[ReviewCall]
    earlier_left_out: int
    sides: list[ReviewSide]
    others: list[OtherLabel]


class ReviewAgreement(BaseModel):
    """Krippendorff's alpha (interval metric) with its 95 % interval over `items` items that the reviewer and at least one
    other person labelled; null where it is undefined.
    """

    alpha: float | None
    low: float | None
    high: float | None
    items: int
    people: int


class LabelRequest(BaseModel, extra="forbid"):
    """A label. `value`: 1 right, .5 half right, 0 wrong; for a pair 1 to accept, 0 to reject. From the queue `disputes` it
    is an adjudication. `edit`: the JSON of an EditedMessage in place of the better one of an accepted pair.
    """

    queue: QueueName
    item_id: str = Field(max_length=64)
    value: float = Field(ge=0, le=1, allow_inf_nan=False)
    comment: str = Field("", max_length=4_000)
    edit: str = Field("", max_length=200_000)


class ChangedItem(BaseModel):
    """The item whose label was saved or withdrawn; null if there was none to withdraw."""

    item_id: str | None


def same_origin(request: Request) -> None:
    """Refuse a request that a page of another origin may have sent: its Origin must be this server, and its content
    type one that a form cannot have.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send application/json")
    origin = urlsplit(request.headers.get("origin", ""))
    if origin.scheme != request.url.scheme or origin.netloc != request.headers.get("host"):
        raise HTTPException(403, "the request does not come from this page; reload the page")


def review_router(desk: ReviewDesk | None) -> APIRouter:
    """Return the routes for a desk; without one, of a read-only inspector."""

    def opened() -> ReviewDesk:
        if desk is None:
            raise HTTPException(403, "the inspector is read-only; start it with --review NAME")
        return desk

    Desk = Annotated[ReviewDesk, Depends(opened)]
    router = APIRouter(prefix="/api/review", tags=["review"])

    @router.get("")
    def get_review() -> ReviewState:
        """Return the reviewer's name and progress."""
        queues: dict[QueueName, ReviewQueue] = {}
        for name in ("steps", "pairs", "disputes") if desk is not None else ():
            items = opened().queue(name)
            queues[name] = ReviewQueue(total=len(items), labelled=sum(queued.own is not None for queued in items))
        return ReviewState(reviewer=None if desk is None else desk.reviewer, queues=queues)

    @router.get("/queues/{name}")
    def get_review_queue(name: QueueName, desk: Desk) -> list[ReviewEntry]:
        """Return the items of a queue, in order."""
        return [
            ReviewEntry(**fields_of(queued.item, *ReviewPlace.model_fields), value=queued.own and queued.own.value)
            for queued in desk.queue(name)
        ]

    @router.get("/items/{item_id}")
    def get_review_item(item_id: str, desk: Desk, queue: QueueName = "steps") -> ReviewDetail:
        """Return an item of a queue in full."""
        try:
            item = desk.item(item_id)
        except DataError as error:
            raise HTTPException(404, str(error)) from error
        disputes = desk.queue("disputes") if queue == "disputes" else []
        disputed = next((queued for queued in disputes if queued.item == item), None)
        return _detail(item, desk.trajectories, disputed)

    @router.get("/agreement/{name}")
    def get_review_agreement(name: Literal["steps", "pairs"], desk: Desk) -> ReviewAgreement:
        """Return the agreement of people on what the reviewer has labelled."""
        found = desk.agreement(name)
        alpha = found.alpha
        return ReviewAgreement(
            alpha=alpha.value, low=alpha.low, high=alpha.high, items=found.things, people=found.raters
        )

    @router.post("/labels", dependencies=[Depends(same_origin)])
    def post_label(request: LabelRequest, desk: Desk) -> ChangedItem:
        """Save a label, durably. Sending it twice saves it once."""
        try:
            if desk.item(request.item_id).rejected and request.value not in (0, 1):
                raise HTTPException(422, "a pair is accepted (1) or rejected (0)")
            adjudicate = request.queue == "disputes"
            desk.add(request.item_id, request.value, request.comment, edit=request.edit, adjudicate=adjudicate)
        except DataError as error:
            raise HTTPException(409, str(error)) from error
        return ChangedItem(item_id=request.item_id)

    @router.post("/undo", dependencies=[Depends(same_origin)])
    def post_undo(desk: Desk) -> ChangedItem:
        """Withdraw the reviewer's latest label."""
        item = desk.undo()
        return ChangedItem(item_id=None if item is None else item.item_id)

    return router


def _detail(item: ReviewItem, trajectories: dict[str, Trajectory], disputed: QueuedItem | None) -> ReviewDetail:
    trajectory = trajectories[item.episode_id]
    earlier = [  # none for whole episodes, whose turn is -1
        (turn, call)
        for turn in trajectory.turns
        for number, call in enumerate(turn.calls)
        if (turn.index, number) < (item.turn, max(item.step, 0))
    ]
    return ReviewDetail(
        **fields_of(item, *ReviewPlace.model_fields),
        task=_cut(trajectory.task.description, MAX_TEXT),
        earlier=[_call(turn, call, EARLIER_TEXT) for turn, call in earlier[-EARLIER_STEPS:]],
        earlier_left_out=max(0, len(earlier) - EARLIER_STEPS),
        sides=[_side(trajectories[name], item) for name in (item.episode_id, item.rejected) if name],
        others=[] if disputed is None else list(disputed.others),
    )


def _side(trajectory: Trajectory, item: ReviewItem) -> ReviewSide:
    turns = [turn for turn in trajectory.turns if item.turn in (WHOLE, turn.index)]
    most = MAX_EPISODE_TEXT if item.turn == WHOLE else MAX_TEXT
    return ReviewSide(episode_id=trajectory.episode_id, turns=[_turn(turn, item.step, most) for turn in turns])


def _turn(turn: Turn, step: int, most: int) -> ReviewTurn:
    """Convert a turn, with `step` -1 or one of its calls."""
    calls = turn.calls if step == WHOLE else turn.calls[step : step + 1]
    # The text belongs to the first call of a turn.
    text, thought = ("", "") if step > 0 else (turn.text, turn.thought or "")
    shown = "" if thought == text else thought
    views = [_call(turn, call, most) for call in calls]
    return ReviewTurn(turn=turn.index, thought=_cut(shown, most), text=_cut(text, most), calls=views)


def _call(turn: Turn, call: ToolCall, most: int) -> ReviewCall:
    result = next((result for result in turn.results if result.call_id == call.call_id), None)
    arguments = call.raw if call.parse_error is not None else as_json(call.arguments, indent=2)
    return ReviewCall(
        tool=call.tool,
        arguments=_cut(arguments, most),
        parse_error=call.parse_error,
        result=result and _cut(result.content, most),
        exit_code=result and result.exit_code,
        error=result and result.error,
    )


def _cut(text: str, most: int) -> CutText:
    return CutText(text=clean_text(text[:most]), length=len(text))
