"""Print judgements as a table, and rubrics criterion by criterion."""

from typing import TYPE_CHECKING, Any

from .terminal import print_fields, print_note, print_table, print_text

if TYPE_CHECKING:
    from ratchet.components.rewards.annotation_records import Judgement


def show_rubric(described: dict[str, Any]) -> None:
    """Print each criterion of a rubric, as returned by `describe_rubric`, with its weight, question and anchors."""
    print_text(f"{described['version']}: {described['about']}")
    for name, line in described["lines"].items():
        print_text(f"\n{name}  (weight {line['weight']:g})\n  {line['asks']}")
        for value, words in line["anchors"].items():
            print_text(f"  {value:>4}  {words}")


def show_judgements(judgements: "list[Judgement]") -> None:
    """Print a row per judge with count, mean, failures and cost, then the agreement of several judges."""
    from ratchet.components.rewards.human_labels.rater_agreement import agreement_of_judges
    from ratchet.components.trajectories.terminal_rendering import single_line

    by_judge: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        by_judge.setdefault(judgement.judge, []).append(judgement)
    rows = []
    for name, theirs in by_judge.items():
        scores = [judgement.overall for judgement in theirs if judgement.overall is not None]
        mean = f"{sum(scores) / len(scores):.3f}" if scores else None
        failed = sum(judgement.error is not None for judgement in theirs)
        places = len({(judgement.episode_id, judgement.turn, judgement.step) for judgement in theirs})
        money = [judgement.cost.money for judgement in theirs if judgement.cost.money is not None]
        tokens = sum(
            (judgement.cost.prompt_tokens or 0) + (judgement.cost.completion_tokens or 0) for judgement in theirs
        )
        rows.append(
            (
                name,
                places,
                mean,
                failed,
                sum(judgement.cost.calls for judgement in theirs),
                tokens,
                f"{sum(money):.4f}" if money else None,
            )
        )
    print_table(("judge", "judged", "mean", "failed", "calls", "tokens", "money"), rows)
    errors = sorted({judgement.error for judgement in judgements if judgement.error is not None})
    for error in errors[:3]:
        print_note(f"failed: {single_line(error, 300)}")
    if len(by_judge) > 1:
        agreement = agreement_of_judges(judgements)
        print_fields(
            {
                "agreement (Krippendorff's alpha)": agreement.alpha,
                "mean difference": agreement.spread,
                "items judged by several": agreement.things,
            }
        )
