"""Print the plan of a night: steps, memory, and what its decision can show."""

from ratchet.components.core.errors import count_text
from ratchet.components.statistics.result_types import percent
from ratchet.flows.night_plan import NightPlan, PlannedStep, training_disk

from .terminal import bytes_text, duration_text, print_table, print_text


def show_plan(plan: NightPlan) -> None:
    """Print a plan as tables."""
    what = (
        "begins a new night" if plan.night is None else f"{'resumes' if plan.resumes else 'begins'} night {plan.night}"
    )
    print_text(f"scale {plan.scale}, recipe {plan.recipe}, seed {plan.seed}: `ratchet night` {what}")
    if plan.running is not None:
        print_text(f"night {plan.running} is running now; another begins when it has ended")
    _show_steps(plan)
    _show_memory(plan)
    _show_decision(plan)


def _show_steps(plan: NightPlan) -> None:
    print_table(
        ("step", "state", "time", "disk", "money", "remark"),
        [
            (step.name, step.state, duration_text(step.seconds), bytes_text(step.disk), _money(step), step.note)
            for step in plan.steps
        ],
    )
    open_steps = [step for step in plan.steps if step.state == "to do"]
    unknown = [step.name for step in open_steps if step.seconds is None]
    known = sum(step.seconds for step in open_steps if step.seconds is not None)
    if not plan.past:
        print_text(
            "time: no night of this scale has run in this home, so there is no estimate; the first night makes one"
        )
    elif unknown:
        print_text(f"time: {duration_text(known)} and the time of {', '.join(unknown)}, which no past night here took")
    else:
        print_text(
            f"time: {duration_text(known)}, by medians of the past {count_text(len(plan.past), 'night')} of this home"
        )
    sizes = [step.disk for step in open_steps if step.disk is not None]
    left = f"the night leaves about {bytes_text(sum(sizes))} of the steps measured so far; " if sizes else ""
    print_text(f"disk: {left}{bytes_text(plan.disk_free)} are free")
    money = [step.money for step in open_steps]
    if None in money:
        print_text(
            "money: without a limit (see the steps marked `no limit`); `judge.budget.money` in the scale sets one"
        )
    else:
        limit = sum(part for part in money if part is not None)
        print_text(
            f"money: {f'at most {limit:g}' if limit else 'nothing'} for judges and paid servers; machines are not counted"
        )


def _money(step: PlannedStep) -> str:
    return "no limit" if step.money is None else f"{step.money:g}"


def _show_memory(plan: NightPlan) -> None:
    print_table(
        (
            "training job",
            "method",
            "from",
            "trained",
            "weights",
            "gradients",
            "optimizer",
            "activations",
            "logits",
            "peak",
            "disk",
        ),
        [
            (
                job.name,
                job.method,
                job.base,
                f"{job.memory.trained_parameters:,} of {job.memory.parameters:,}",
                bytes_text(job.memory.weights),
                bytes_text(job.memory.gradients),
                bytes_text(job.memory.optimizer),
                bytes_text(job.memory.activations) if job.memory.is_complete else None,
                bytes_text(job.memory.logits) if job.memory.is_complete else None,
                bytes_text(job.memory.total),
                bytes_text(job.disk),
            )
            if job.memory
            else (job.name, job.method, job.base, *[None] * 8)
            for job in plan.jobs
        ],
    )
    problems: dict[str, list[str]] = {}
    for job in plan.jobs:
        if job.problem:
            problems.setdefault(job.problem, []).append(job.name)
    for problem, names in problems.items():
        print_text(f"{', '.join(names)}: {problem}")
    if (server := plan.server) is not None:
        if server.memory is not None:
            parts = (
                f"{bytes_text(server.memory.weights)} of weights, {bytes_text(server.memory.cache)} for keys and values"
            )
            held = f"{server.memory.rows:.1f} sequences of {server.memory.context:,} tokens at once"
            print_text(f"vLLM server, on {count_text(server.gpus, 'GPU')}, while nothing trains there: {parts}, {held}")
        if server.problem:
            print_text(f"vLLM server of {server.base}: {server.problem}")
    is_known = all(job.memory for job in plan.jobs)
    disk = training_disk(plan.jobs)
    verdict = "" if disk <= plan.disk_free else ": DOES NOT FIT; free space, or train adapters (model.lora)"
    needed = f"at most {bytes_text(disk)}" if is_known else "unknown, because a model's size is unknown,"
    print_text(f"disk of training: {needed} of {bytes_text(plan.disk_free)} that are free{verdict}")
    room = f"{plan.memory.device} ({bytes_text(plan.memory.total)}{' each' if plan.memory.devices > 1 else ''})"
    if plan.needed is None:
        print_text(f"memory: unknown, because a model's size is unknown; the jobs would use the {room}")
    else:
        verdict = (
            "fits"
            if plan.needed <= plan.memory.total
            else "DOES NOT FIT; set model.lora, model.gradient_checkpointing, optimization.micro_batch or format.max_length"
        )
        print_text(f"memory: at most about {bytes_text(plan.needed)} at once in the {room}: {verdict}")


def _show_decision(plan: NightPlan) -> None:
    declared = plan.declaration
    variance = (
        f"variance of night {plan.variance_of}"
        if plan.variance_of
        else "variance assumed, since no night has decided here"
    )
    tasks = f"{count_text(declared.tasks, 'task')} of {count_text(declared.families, 'family')}"
    size = f"{tasks} x {count_text(declared.attempts, 'attempt')}"
    print_text(f"decision on {plan.taskset}: {size}, one-sided level {declared.level:.2g}; {variance}")
    if plan.obstacles:
        print_text(
            f"NO PROMOTION is to be expected of this night, however large the lead: {'; '.join(plan.obstacles)}; play more "
            "deciding tasks (evaluation.promote) or relax the rule (promotion)"
        )
    print_table(
        ("true lead (points)", "found with chance", "nights to promote (mean)"),
        [
            (
                f"{100 * lead.lead:g}",
                percent(lead.power),
                "over a year" if lead.nights is None else f"{lead.nights:.1f}",
            )
            for lead in plan.leads
        ],
    )
    print_table(
        ("tasks", "attempts", f"least lead found with chance {percent(declared.power)} (points)"),
        [
            (design.tasks, design.attempts, None if design.detectable is None else f"{100 * design.detectable:.1f}")
            for design in plan.designs
        ],
    )
    print_table(
        ("guardrail", "margin", "families it needs", "there are", "an equal challenger passes"),
        [
            (
                margin.name,
                f"{margin.margin:g}",
                margin.families,
                margin.available,
                None if margin.passes is None else percent(margin.passes),
            )
            for margin in plan.margins
        ],
    )
