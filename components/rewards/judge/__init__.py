"""Layer 2 of the process reward: models that judge steps or episodes by a rubric, within a budget, each thing once.

    config = JudgeConfig.load(Path("judge.yaml"))
    with open_judges(config) as judges:
        for judgement in judge_all(trajectories, judges, JudgementCache(folder), Budget(config.budget)):
            ...

Secrets are taken out before anything leaves; what an agent or its tools wrote reaches a model as fenced data only.
"""

from ..judgement import Judgement
from .agreement import Agreement, agreement
from .budget import Budget, BudgetExhausted, Spent
from .cache import JudgementCache, read_judgements
from .config import JudgeConfig, Limits, ModelConfig
from .judge import Judge
from .judging import Progress, judge_all, known, open_judges
from .model import Model, Question, Reply, Subject
from .planning import pending
from .rubric import Rubric, load_rubric, rubrics
from .scripted import ScriptedModel, scripted_judge

__all__ = [
    "Agreement",
    "Budget",
    "BudgetExhausted",
    "Judge",
    "JudgeConfig",
    "Judgement",
    "JudgementCache",
    "Limits",
    "Model",
    "ModelConfig",
    "Progress",
    "Question",
    "Reply",
    "Rubric",
    "ScriptedModel",
    "Spent",
    "Subject",
    "agreement",
    "judge_all",
    "known",
    "load_rubric",
    "open_judges",
    "pending",
    "read_judgements",
    "rubrics",
    "scripted_judge",
]
