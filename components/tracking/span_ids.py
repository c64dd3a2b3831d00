"""The ids of our spans: 16 hex digits that say where a span stands, so that feedback on it needs no look at its trace."""

WHOLE = -1
"""The turn of the whole episode; the step of a whole turn or episode."""
_EPISODE, _TURN, _STEP = "1", "2", "3"


def span_id(turn: int = WHOLE, step: int = WHOLE) -> str:
    """16 hex digits that hold the place: a step of a turn, a whole turn, or the whole episode."""
    kind = _EPISODE if turn == WHOLE else _TURN if step == WHOLE else _STEP
    return f"{kind}{max(turn, 0):08x}{max(step, 0):07x}"


def place_of(span: str | None) -> tuple[int, int] | None:
    """Turn and step of a span of ours (no span: the whole episode); None for any other."""
    if not span:
        return WHOLE, WHOLE
    try:
        turn, step = int(span[1:9], 16), int(span[9:], 16)
    except ValueError:
        return None
    found = {_EPISODE: (WHOLE, WHOLE), _TURN: (turn, WHOLE), _STEP: (turn, step)}.get(span[0])
    return found if found is not None and span_id(*found) == span else None
