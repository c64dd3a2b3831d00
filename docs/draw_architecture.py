"""Draw the loop of a night and the owner of each step: `python docs/draw_architecture.py` writes images/architecture.svg."""

from html import escape
from pathlib import Path

TARGET = Path(__file__).parent / "images" / "architecture.svg"
LANES = (
    (
        ("Prefect", "when"),
        "#0b5fa5",
        [("collect", "policy in sandboxes"), ("judge", "models, people"), ("train", "TRL, own process"),
         ("evaluate", "k attempts a task"), ("decide", "paired tests")],
    ),
    (
        ("DVC", "the data build"),
        "#8a4b08",
        [("score", "process reward"), ("validate", "Great Expectations"), ("rank", "duplicates, GDI"),
         ("pairs", "preferences"), ("export, gate", "SFT DPO GRPO")],
    ),
    (
        ("MLflow", "what happened"),
        "#1b6e3c",
        [("traces", "episodes"), ("runs", "metrics"), ("checkpoints", "models"), ("comparisons", "intervals"),
         ("@champion", "alias")],
    ),
)  # fmt: skip
WIDTH, LANE, BOX, GAP, LEFT = 1010, 96, 140, 24, 156


def draw() -> str:
    """Return the picture as SVG. It needs no font file and no script, and reads on light and dark pages."""
    height = len(LANES) * LANE + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img">',
        "<title>The loop of a night</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
    ]
    for row, (owner, colour, boxes) in enumerate(LANES):
        top = row * LANE
        parts += [_text(62, top + 47, owner[0], 16, colour), _text(62, top + 66, owner[1], 13, colour)]
        for column, (name, note) in enumerate(boxes):
            x = LEFT + column * (BOX + GAP)
            parts += [
                f'<rect x="{x}" y="{top + 24}" width="{BOX}" height="54" rx="6" fill="{colour}14" stroke="{colour}"/>',
                _text(x + BOX / 2, top + 47, name, 15, "#111"),
                _text(x + BOX / 2, top + 66, note, 12, "#444"),
            ]
            if column and row < 2:
                parts.append(_line(f"M{x - GAP} {top + 51}H{x - 2}"))
    first, second, third = (row * LANE for row in range(3))
    train, last = (LEFT + column * (BOX + GAP) + BOX / 2 for column in (2, 4))
    start, right, bottom = LEFT + BOX / 2, LEFT + 5 * BOX + 4 * GAP, third + 96
    parts += [
        _line(f"M{start} {first + 78}V{second + 22}"),  # sealed episodes enter the build
        _line(f"M{last} {second + 24}V{first + 90}H{train}V{first + 80}"),  # datasets go to training
        _line(f"M{right} {first + 51}h16V{third + 51}H{right + 2}"),  # the decision moves the alias
        _line(
            f"M{last} {third + 78}V{bottom}H{LEFT - 22}V{first + 51}H{LEFT - 2}"
        ),  # the champion plays the next night
        _text(LEFT + (right - LEFT) / 2, bottom + 20, "The champion plays the next night.", 14, "#444"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, text: str, size: int, colour: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="middle">{escape(text)}</text>'


def _line(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="#777" stroke-width="1.6" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
