"""The verifiable components of an episode, by name, for a GRPO job's reward and for scoring.

| component | is |
|---|---|
| `accuracy` | 1 or 0: the last reply's answer equals the task's `answer` as mathematics, or its program passes every test case;
without `truths`: the environment's verdict |
| `program` | the share of the task's test cases that the last reply's program passes |
| `execution_gated` | parse, run, tests, efficiency, each gate worth more than all before it (`program_tests`) |
| `rule_fraction` | the share of the applicable rules that the episode keeps |
| `format` | 1 where the last reply has the layout `<think>...</think><answer>...</answer>`, else 0 |
| `language` | the share of words in the target language, over the reasoning of all replies (all of one without the layout) |

None: unknown, because the task has no such truth, no rule applies, or there are no words. Only text of the policy is read. Each
program runs in a fresh sandbox, so that no attempt can affect the next.

AutoRule (arXiv:2506.15651) lets a model propose rules from preferences and rewards a reply with the share of them that it
keeps. Here candidate rules are predicates from any source, and `extract_rules` decides by a statistical test which of
them preferences follow.
"""

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec
import pydantic

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.configuration import Configuration
from ratchet.components.trajectories.trajectory import Trajectory

from .math_verifier import MathVerifier
from .program_tests import ProgramCase, ProgramResult, execution_gated, grade_program, program_gates
from .reply_format import LANGUAGES, final_answer, final_program, format_score, language_share, parse_reply

Weight = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Component = Literal["accuracy", "program", "execution_gated", "rule_fraction", "format", "language"]
COMPONENTS: tuple[Component, ...] = get_args(Component)
NEED_TRUTHS = frozenset({"accuracy", "program", "execution_gated"})
MATH_VERIFIER = MathVerifier()
"""Shared by the process. It starts with the first question, which takes seconds."""


class VerifiableConfig(Configuration):
    """Weights of the components in the verifiable score of an episode, and their inputs.

    - `accuracy`, `format`, `language`, `program`, `execution_gated`, `rule_fraction`: weight of each component; 0
      leaves it out.
    - `target`: language that replies should use.
    - `truths`: JSONL file with a line per task: `task_id` and an `answer` (mathematics) or test `cases` (a program).
      None: `accuracy` is the success that the environment recorded.
    - `rules`: functions counted by `rule_fraction`, each `module:function` from a Trajectory to True, False or None
      (does not apply).
    - `seconds`: time limit of each test of a program. `sandbox`: `module:function` that returns a sandbox for programs.
    """

    accuracy: Weight = 1.0
    format: Weight = 0.0
    language: Weight = 0.0
    program: Weight = 0.0
    execution_gated: Weight = 0.0
    rule_fraction: Weight = 0.0
    target: str = "en"
    truths: Path | None = None
    rules: tuple[str, ...] = ()
    seconds: float = pydantic.Field(10.0, gt=0)
    sandbox: str = "ratchet.components.sandboxes:make_sandbox"


class TaskTruth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ground truth of a task: either `answer` or `cases`. `reference_seconds`: time that a good program needs for all
    cases; None: no efficiency gate.
    """

    task_id: str
    answer: str | None = None
    cases: list[ProgramCase] = []
    reference_seconds: float | None = None


class EpisodeComponents:
    """Computes the components in `names`. The constructor raises ConfigurationError for a component without its input,
    and DataError for unreadable truths.
    """

    def __init__(self, config: VerifiableConfig, names: Iterable[Component]) -> None:
        self.config, self.names = config, tuple(names)
        if config.truths is None and (without_truths := sorted((NEED_TRUTHS - {"accuracy"}) & set(self.names))):
            raise ConfigurationError(
                f"reward component '{without_truths[0]}' needs verifiable.truths: a JSONL file with the test cases of "
                "each task; without it give the component the weight 0"
            )
        if "rule_fraction" in self.names and not config.rules:
            raise ConfigurationError(
                "reward component 'rule_fraction' needs verifiable.rules: functions of a trajectory, each named module:function"
            )
        if config.target not in LANGUAGES:
            raise ConfigurationError(
                f"verifiable.target: language '{config.target}' is not known; choose one of {', '.join(LANGUAGES)}"
            )
        self._truths = read_truths(config.truths) if config.truths else {}
        self._rules = [_import_function(name, "verifiable.rules") for name in config.rules]

    def of(self, trajectory: Trajectory) -> dict[str, float | None]:
        """Return the score of each component of one episode by name; None where unknown. A program is run in a sandbox.
        Raises SandboxUnavailable.
        """
        reply = trajectory.turns[-1].text if trajectory.turns else ""
        truth = self._truths.get(trajectory.task.task_id, TaskTruth(trajectory.task.task_id))
        tested = self._tested(reply, truth) if truth.cases and NEED_TRUTHS & set(self.names) else None
        compute: Mapping[Component, Callable[[], float | None]] = {
            "accuracy": lambda: self._accuracy(trajectory, truth, tested),
            "program": lambda: tested.passed / tested.total if tested else None,
            "execution_gated": lambda: (
                execution_gated(program_gates(tested, truth.reference_seconds)) if tested else None
            ),
            "rule_fraction": lambda: rule_fraction(rule(trajectory) for rule in self._rules),
            "format": lambda: format_score(reply),
            "language": lambda: language_share(_reasoning_of(trajectory), self.config.target),
        }
        return {name: compute[name]() for name in self.names}

    def _accuracy(self, trajectory: Trajectory, truth: TaskTruth, tested: ProgramResult | None) -> float | None:
        if self.config.truths is None:
            success = trajectory.outcome.success
            return None if success is None else float(success)
        if truth.answer is None:
            return None if tested is None else tested.accuracy
        answer = final_answer(trajectory.turns[-1].text) if trajectory.turns else None
        equal = False if answer is None else MATH_VERIFIER.equal(truth.answer, answer)
        return None if equal is None else float(equal)

    def _tested(self, reply: str, truth: TaskTruth) -> ProgramResult:
        program = final_program(reply)
        if program is None:
            return ProgramResult(False, False, 0, len(truth.cases), 0.0)
        # A fresh sandbox per program: an earlier attempt must not leave files or processes for the next.
        with _import_function(self.config.sandbox, "verifiable.sandbox")() as sandbox:
            return grade_program(program, truth.cases, sandbox, self.config.seconds)


def read_truths(path: Path) -> dict[str, TaskTruth]:
    """Return truths by task id. Raises ConfigurationError where the file cannot be read, DataError with file and line
    where a truth is invalid or a task occurs twice.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(
            f"verifiable.truths: {path} cannot be read: {error.strerror}; give a JSONL file"
        ) from error
    truths: dict[str, TaskTruth] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            truth = msgspec.json.decode(line, type=TaskTruth)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not the truth of a task: {error}") from error
        if truth.task_id in truths:
            raise DataError(f"{path}, line {number}: task '{truth.task_id}' occurs twice; keep one")
        if (truth.answer is None) == (not truth.cases):
            raise DataError(f"{path}, line {number}: task '{truth.task_id}' needs an answer or cases, and not both")
        truths[truth.task_id] = truth
    return truths


def truths_hash(config: VerifiableConfig) -> str:
    """Return the SHA-256 of the file of truths in hex; empty if none is configured. Raises the same as
    `read_truths`.
    """
    if config.truths is None:
        return ""
    read_truths(config.truths)
    return hashlib.sha256(config.truths.read_bytes()).hexdigest()


def scored_components(config: VerifiableConfig, trajectory: Trajectory) -> dict[str, float | None]:
    """Return the score of each component that has a positive weight. Truths are read once per configuration and
    process.
    """
    return _configured_components(config.model_dump_json()).of(trajectory)


def verifiable_score(config: VerifiableConfig, components: Mapping[str, float | None]) -> float | None:
    """Return the mean of the components that are not None, by the weights of the configuration; None without any."""
    weighted = [(getattr(config, name), score) for name, score in components.items() if score is not None]
    total_weight = sum(weight for weight, _ in weighted)
    return min(1.0, sum(weight * score for weight, score in weighted) / total_weight) if total_weight > 0 else None


@lru_cache(maxsize=8)
def _configured_components(config: str) -> EpisodeComponents:
    """Cached, so that truths are read once."""
    read = VerifiableConfig.model_validate_json(config)
    return EpisodeComponents(read, [name for name in COMPONENTS if getattr(read, name) > 0])


def _reasoning_of(trajectory: Trajectory) -> str:
    replies = ((parse_reply(turn.text), turn.text) for turn in trajectory.turns)
    return "\n".join(text if reply is None else reply.reasoning for reply, text in replies)


def _import_function(name: str, key: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    try:
        imported: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{key}: '{name}' cannot be found: {error}; name it as module:function") from error
    return imported


Item = TypeVar("Item")
RulePredicate = Callable[[Item], bool | None]
"""Whether an item keeps a rule; None where the rule does not apply."""


class PreferenceRule(NamedTuple, Generic[Item]):
    """A rule that preferences follow. `keeps`: its predicate. `pairs`: number of tested pairs in which exactly one side
    keeps the rule; `kept`: number of these in which it is the chosen side. `p`: p-value, corrected.
    """

    name: str
    keeps: RulePredicate[Item]
    kept: int
    pairs: int
    p: float


def rule_fraction(verdicts: Iterable[bool | None]) -> float | None:
    """Return the share of rules kept among those that apply (not None); None where none applies."""
    applicable = [verdict for verdict in verdicts if verdict is not None]
    return sum(applicable) / len(applicable) if applicable else None


def extract_rules(
    candidates: Mapping[str, RulePredicate[Item]], pairs: Sequence[tuple[Item, Item]], alpha: float = 0.01
) -> list[PreferenceRule[Item]]:
    """Return the candidates that the preferences `(chosen, rejected)` follow, strongest first.

    A pair counts for a rule where exactly one side keeps it. The strongest candidate is accepted by an exact one-sided
    sign test with Bonferroni correction for the remaining candidates. Its pairs are removed, so that correlated rules
    are not accepted as well. This is repeated until no p-value is below `alpha`.
    """
    remaining = dict(candidates)
    verdicts = {name: [_verdict(keeps, *pair) for pair in pairs] for name, keeps in remaining.items()}
    open_pairs = set(range(len(pairs)))
    accepted: list[PreferenceRule[Item]] = []
    while remaining:
        rule = min(
            (_test_rule(name, remaining, verdicts[name], open_pairs) for name in remaining),
            key=lambda rule_tested: (rule_tested.p, rule_tested.name),
        )
        if rule.p >= alpha:
            break
        accepted.append(rule)
        open_pairs = {pair for pair in open_pairs if verdicts[rule.name][pair] == 0}
        del remaining[rule.name]
    return accepted


def _verdict(keeps: RulePredicate[Item], chosen: Item, rejected: Item) -> int:
    """Return 1 where only the chosen side keeps the rule, -1 where only the rejected does, else 0."""
    one, other = keeps(chosen), keeps(rejected)
    return 0 if one is None or other is None else int(one) - int(other)


def _test_rule(
    name: str, remaining: Mapping[str, RulePredicate[Item]], verdicts: Sequence[int], pairs: Iterable[int]
) -> PreferenceRule[Item]:
    from scipy.stats import binomtest

    decided = [verdicts[pair] for pair in pairs if verdicts[pair]]
    positives = decided.count(1)
    p_value = float(binomtest(positives, len(decided), alternative="greater").pvalue) if decided else 1.0
    return PreferenceRule(name, remaining[name], positives, len(decided), min(1.0, len(remaining) * p_value))
