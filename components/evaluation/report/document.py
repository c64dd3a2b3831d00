"""Document: a morning as blocks, in the order of a reader's questions: is it better, where, by which episodes, and what now?"""

from collections.abc import Iterator

from . import duel, house, verdict
from .blocks import Block, Document, Heading, Picture, Prose
from .morning import Morning

FIRST = ("difference_forest", "success_bars")
"""Pictures that stand beside the figures that they draw; all others follow the episodes."""


def document(morning: Morning) -> Document:
    """The report."""
    point = morning.point
    told = [house.day(point.begun), f"scale {point.scale}" if point.scale else "", f"seed {morning.seed}"]
    recipe = f"recipe {point.recipe}" if point.recipe else ""
    subtitle = ", ".join(each for each in [*told, recipe] if each)
    return Document(f"Night {point.night}", subtitle, tuple(_blocks(morning)))


def _blocks(morning: Morning) -> Iterator[Block]:
    if morning.decision is None:
        yield house.standing(morning)
    else:
        yield verdict.banner(morning.decision)
        if morning.state == "failed":
            yield Prose(f"The night failed after its decision: {morning.error or 'the error was not kept'}.", "bad")
        elif morning.state == "unfinished":
            yield Prose("The night has decided, and is not finished yet.", "bad")
        if morning.holder is not None:
            yield Prose(f"The place stays with version {morning.holder}, which took it while the night ran.", "bad")
        yield from _decided(morning)
    yield Heading("Data quality", "data")
    yield from house.quality(morning)
    yield Heading("Time and cost", "cost")
    yield from house.cost(morning)
    yield Heading("Since the night before", "since")
    yield from house.since(morning)
    yield Heading("How to go on", "next")
    yield house.commands(morning)
    yield from (Prose(f"Not shown: {each}", "quiet") for each in morning.missing)


def _decided(morning: Morning) -> Iterator[Block]:
    decision = morning.decision
    assert decision is not None
    pictures = {each.name: each for each in morning.pictures}
    yield Heading("Success", "success")
    yield from verdict.success(decision)
    yield from _drawn(pictures, "success_bars")
    yield Heading("Where", "where")
    yield verdict.kinds(decision)
    yield from _drawn(pictures, "difference_forest")
    yield Heading("Guardrails", "guardrails")
    yield verdict.guardrails(decision)
    yield verdict.rule(decision)
    yield Heading("Episodes", "episodes")
    lead = decision.versus_champion
    yield Prose(f"The challenger won {lead.won} tasks, lost {lead.lost_to} and tied {lead.tied}. Those that say most:")
    for each in morning.duels:
        yield from duel.blocks_of(each)
    others = [each for each in morning.pictures if each.name not in FIRST]
    if others:
        yield Heading("Figures", "figures")
        yield from others


def _drawn(pictures: dict[str, Picture], name: str) -> Iterator[Picture]:
    if name in pictures:
        yield pictures[name]
