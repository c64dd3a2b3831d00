"""An environment of your own: tools are functions over a world, of which every episode gets a copy.

A taskset names it as `greenhouse:mine/greenhouse`: the module to import, and the id that it registers.
"""

from typing import Any

from ratchet import SUBMIT, DialogueEnvironment, ToolError, register, tool


def look(world: dict[str, Any]) -> str:
    """List the plants and how they are."""
    return ", ".join(f"{plant}: {state}" for plant, state in world["plants"].items())


def water(world: dict[str, Any], plant: str) -> str:
    """Water a plant."""
    if plant not in world["plants"]:
        raise ToolError(f"there is no {plant}")
    world["plants"][plant] = "wet"
    return f"{plant} is wet now"


class Greenhouse(DialogueEnvironment):
    """Domain `greenhouse`; tools: look, water, submit, which ends the episode."""

    domain = "greenhouse"

    def __init__(self, max_steps: int = 20) -> None:
        super().__init__([tool(look), tool(water), SUBMIT], max_steps=max_steps)


register("mine/greenhouse", Greenhouse, domain="greenhouse", description="Water plants; graded by how they are left.")
