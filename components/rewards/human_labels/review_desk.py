"""The review desk: what a person labels next, the labels given so far, and disagreements between people.

Steps, preference pairs and disputes are items of three queues. Labels are appended to one file, each durable before the
call returns, and the state of a desk is always what that file says: a killed process loses no label, and any number of
reviewers and processes may share the file. A withdrawal is a record too.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import append_json_lines
from ratchet.components.trajectories.chat_messages import edited_turn
from ratchet.components.trajectories.trajectory import Trajectory, digest

from ..annotation_records import ADJUDICATION, OVERALL, PREFERRED_TO, WHOLE, Judgement, Label
from ..calibration.labelled_scores import labelled_when
from .label_files import read_labels
from .label_selection import LabelCandidate, choose_candidates, choose_steps
from .rater_agreement import KrippendorffAlpha, krippendorff

QueueName = Literal["steps", "pairs", "disputes"]
EXPERIMENTS = ("injection", "repair", "monte_carlo")
"""Annotators that are no people."""
RESERVED = (*EXPERIMENTS, ADJUDICATION.rstrip(":"))
DISPUTED = 0.5
"""Least difference between the labels of two people that makes a dispute: right and half right, or half right and wrong."""


class ProposedPair(NamedTuple):
    """A preference pair of a build. `turn` -1: whole episodes. `margin`: difference of worth in [0, 1]."""

    chosen_episode_id: str
    rejected_episode_id: str
    turn: int
    margin: float
    task_id: str


class ReviewItem(NamedTuple):
    """What one label is about. `rejected`: the other episode of a pair, empty for a step."""

    episode_id: str
    turn: int
    step: int
    rejected: str = ""

    @property
    def item_id(self) -> str:
        """A stable name."""
        return digest(*self)[:16]

    @property
    def kind(self) -> Literal["step", "pair"]:
        """Whether the item is a step or a preference pair."""
        return "pair" if self.rejected else "step"

    @property
    def line(self) -> str:
        """The criterion that a label of the item has."""
        return PREFERRED_TO + self.rejected if self.rejected else OVERALL

    @property
    def key(self) -> "ItemKey":
        """Episode, turn, step and criterion."""
        return (self.episode_id, self.turn, self.step, self.line)


ItemKey = tuple[str, int, int, str]


class QueuedItem(NamedTuple):
    """An item with the reviewer's own label, if any. `others`: for a dispute, the labels to decide between, in an order
    that does not follow the names; empty elsewhere.
    """

    item: ReviewItem
    own: Label | None
    others: tuple[Label, ...]


def choose_pairs(pairs: Iterable[ProposedPair], budget: int) -> list[ReviewItem]:
    """Return the pairs that are most worth a review: those with a small margin, spread over tasks and episodes."""
    by_sides: dict[tuple[str, int, int], ProposedPair] = {}
    candidates = []
    for pair in pairs:
        # The best of three options is chosen once per fork; a second pair of the same side only waits for the next build.
        if (place := (pair.chosen_episode_id, pair.turn, WHOLE)) not in by_sides:
            by_sides[place] = pair
            candidates.append(LabelCandidate(*place, pair.task_id, ((1 + min(pair.margin, 1.0)) / 2,)))
    chosen = (by_sides[choice.candidate[:3]] for choice in choose_candidates(candidates, budget))
    return [ReviewItem(pair.chosen_episode_id, pair.turn, WHOLE, pair.rejected_episode_id) for pair in chosen]


class ReviewDesk:
    """The desk of one reviewer. `steps` and `pairs` are offered in order; an item whose episodes are not in
    `trajectories` is left out. `file`: labels of this home, to which the desk appends; `sealed`: those of sealed nights.

    Safe for several threads. Raises ConfigurationError for an empty or reserved name, DataError for a damaged file.
    """

    def __init__(
        self,
        reviewer: str,
        steps: Sequence[ReviewItem],
        pairs: Sequence[ReviewItem],
        trajectories: dict[str, Trajectory],
        file: Path,
        sealed: Sequence[Path] = (),
    ) -> None:
        plain = reviewer.isprintable() and reviewer == reviewer.strip() and 0 < len(reviewer) <= 100
        if not plain or ":" in reviewer or reviewer in RESERVED:
            raise ConfigurationError(
                f"{reviewer[:100]!a} cannot be the name of a reviewer; give up to 100 printable characters without a colon"
            )
        self.reviewer = reviewer
        self.trajectories = trajectories
        self._queues = {
            name: [
                item for item in items if all(side in trajectories for side in (item.episode_id, item.rejected) if side)
            ]
            for name, items in (("steps", steps), ("pairs", pairs))
        }
        self._items = {item.item_id: item for items in self._queues.values() for item in items}
        self._by_key = {item.key: item for item in self._items.values()}
        self._labels: dict[ItemKey, dict[str, Label]] = defaultdict(dict)
        self._times: dict[tuple[ItemKey, str], tuple[float, str]] = {}
        self._own: dict[ItemKey, None] = {}  # items with a label by the reviewer, the latest last
        self._file, self._offset = file, 0
        self._lock = threading.Lock()
        for path in sealed:
            for label in read_labels(path):
                self._apply(label)
        self._read_new()

    def item(self, item_id: str) -> ReviewItem:
        """Return an item by its name. Raises DataError for an unknown one."""
        if item_id not in self._items:
            raise DataError(f"the desk has no item '{item_id}'; reload the page")
        return self._items[item_id]

    def queue(self, name: QueueName) -> list[QueuedItem]:
        """Return the items of a queue in order. Labels by others are visible in disputes only, which the reviewer did not
        label and nobody else has decided.
        """
        with self._lock:
            self._read_new()
            if name == "disputes":
                return [
                    QueuedItem(item, self._adjudication(item), others)
                    for items in self._queues.values()
                    for item in items
                    if (others := self._dispute(item))
                ]
            # Who has decided a dispute knows the labels of others, and gives no independent one, also where one of them is
            # withdrawn since.
            return [
                QueuedItem(item, self._labels[item.key].get(self.reviewer), ())
                for item in self._queues[name]
                if self._adjudication(item) is None
            ]

    def add(self, item_id: str, value: float, comment: str = "", *, edit: str = "", adjudicate: bool = False) -> Label:
        """Append a label and return it. `adjudicate`: it decides a dispute; `edit`: as in `Label`. The same label a second
        time is not appended.

        Raises DataError for an unknown item, an adjudication of what is not disputed, and an edit that is no message or is
        of anything but an accepted pair of messages.
        """
        if edit:
            edited_turn(edit)
        with self._lock:
            self._read_new()
            item = self.item(item_id)
            if edit and (not item.rejected or item.turn == WHOLE or value != 1):
                raise DataError("only the better message of an accepted pair can be edited")
            if adjudicate and not self._dispute(item):
                raise DataError("this item is not in dispute, or was decided by another; reload the page")
            if not adjudicate and self._adjudication(item) is not None:
                raise DataError("you decided the dispute about this item and cannot also label it; undo that first")
            annotator = ADJUDICATION + self.reviewer if adjudicate else self.reviewer
            previous = self._labels[item.key].get(annotator)
            given = (value, comment, edit, self.trajectories[item.episode_id].content_hash)
            if previous and (previous.value, previous.comment, previous.edit, previous.content_hash) == given:
                return previous
            return self._append(item, annotator, value, comment, edit)

    def undo(self) -> ReviewItem | None:
        """Withdraw the reviewer's latest label or adjudication that is not withdrawn, and return its item; None if
        there is none.
        """
        with self._lock:
            self._read_new()
            key = next((key for key in reversed(self._own) if key in self._by_key), None)
            if key is None:
                return None
            item = self._by_key[key]
            adjudication = self._adjudication(item)
            annotator = self.reviewer if adjudication is None else ADJUDICATION + self.reviewer
            self._append(item, annotator, None)
            return item

    def agreement(self, name: Literal["steps", "pairs"]) -> KrippendorffAlpha:
        """Return Krippendorff's alpha of the people who labelled items of a queue, over the items that the reviewer has
        labelled too: a figure of the others alone would tell about labels that are still to be given.
        """
        with self._lock:
            self._read_new()
            ratings = {
                (item.episode_id, item.key): values
                for item in self._queues[name]
                if self.reviewer in (values := {label.annotator: label.value for label in self._people(item)})
            }
        return krippendorff(ratings, resamples=200)  # type: ignore[arg-type]

    def _append(
        self, item: ReviewItem, annotator: str, value: float | None, comment: str = "", edit: str = ""
    ) -> Label:
        label = Label.now(
            self.trajectories[item.episode_id],
            turn=item.turn,
            step=item.step,
            line=item.line,
            value=value,
            annotator=annotator,
            comment=comment,
            edit=edit,
        )
        append_json_lines(self._file, [label])
        self._read_new()
        return label

    def _read_new(self) -> None:
        """Apply the whole lines that were appended to the file since the last call, by any process."""
        try:
            with self._file.open("rb") as file:
                if file.seek(0, 2) < self._offset:  # another file, or one that was cut
                    self._offset = 0
                file.seek(self._offset)
                lines = file.read()
        except FileNotFoundError:
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        try:
            labels = [_decoder.decode(line) for line in whole.split(b"\n") if line.strip()]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            labels = list(read_labels(self._file))  # raises, and names the line
        for label in labels:
            self._apply(label)
        self._offset += len(whole)

    def _apply(self, label: Label) -> None:
        key = (label.episode_id, label.turn, label.step, label.line)
        item = self._by_key.get(key)
        # A label belongs to a content: the same episode played again is labelled anew.
        if item is None or label.content_hash not in ("", self.trajectories[item.episode_id].content_hash):
            return
        # As in calibration the latest counts: sealed labels are read first, and an import may append older ones.
        place, when = (key, label.annotator), labelled_when(label)
        if when < self._times.get(place, when):
            return
        self._times[place] = when
        labels = self._labels[key]
        if label.value is None:
            labels.pop(label.annotator, None)
        else:
            labels[label.annotator] = label
        own = (self.reviewer, ADJUDICATION + self.reviewer)
        if label.annotator in own:
            self._own.pop(key, None)
            if any(annotator in labels for annotator in own):
                self._own[key] = None

    def _people(self, item: ReviewItem) -> list[Label]:
        """Return the independent labels of an item by people."""
        return [
            label
            for annotator, label in self._labels[item.key].items()
            if not annotator.startswith(ADJUDICATION) and annotator.partition(":")[0] not in EXPERIMENTS
        ]

    def _adjudication(self, item: ReviewItem) -> Label | None:
        return self._labels[item.key].get(ADJUDICATION + self.reviewer)

    def _dispute(self, item: ReviewItem) -> tuple[Label, ...]:
        """Return the labels between which the reviewer may decide; empty if there is no dispute for this reviewer."""
        people = self._people(item)
        values = [label.value for label in people if label.value is not None]
        if len(values) < 2 or max(values) - min(values) < DISPUTED:
            return ()
        labelled = self._labels[item.key]
        by_another = any(name.startswith(ADJUDICATION) for name in labelled) and self._adjudication(item) is None
        if self.reviewer in labelled or by_another:
            return ()
        return tuple(sorted(people, key=lambda label: digest(item.item_id, label.annotator)))


_decoder = msgspec.json.Decoder(Label)


def open_desk(
    reviewer: str,
    read_trajectories: Callable[[], Iterator[Trajectory]],
    judgements: Iterable[Judgement],
    pairs: Iterable[ProposedPair],
    file: Path,
    sealed: Sequence[Path] = (),
    *,
    budget: int = 200,
) -> ReviewDesk:
    """Choose up to `budget` steps and as many pairs, and open the desk on them. The choice does not depend on who has
    labelled, so that all reviewers of the same trajectories meet the same items in the same order. The trajectories are read
    twice, and only those of chosen items are held in memory.

    Raises DataError where there is nothing to review.
    """
    chosen = choose_steps(read_trajectories(), judgements, budget)
    steps, pair_items = [ReviewItem(*choice.candidate[:3]) for choice in chosen], choose_pairs(pairs, budget)
    wanted = Counter(side for item in (*steps, *pair_items) for side in (item.episode_id, item.rejected))
    trajectories = {
        trajectory.episode_id: trajectory for trajectory in read_trajectories() if trajectory.episode_id in wanted
    }
    if not steps and not trajectories:
        raise DataError("the trajectories hold no step to review; give others")
    return ReviewDesk(reviewer, steps, pair_items, trajectories, file, sealed)
