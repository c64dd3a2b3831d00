"""Bill: what one judgement takes of a budget, request by request."""

from ..judgement import Cost
from .budget import Budget, Tab
from .model import Declined, Model, Question, Reply


class Bill:
    """What one judgement takes."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self._model = model
        self._budget = budget
        self._calls = 0
        self._prompt: int | None = 0
        self._completion: int | None = 0

    def ask(self, question: Question) -> Reply:
        """The reply, paid from the budget. Raises what the model raises, BudgetExhausted, and Declined."""
        tab = Tab(self._budget, self._model, question)
        try:
            reply = self._model.ask(question, tab)
        finally:
            self._calls += tab.calls
        tab.answered(reply)
        self._prompt = _sum(self._prompt, reply.prompt_tokens)
        self._completion = _sum(self._completion, reply.completion_tokens)
        if reply.declined is not None:
            raise Declined(reply.declined)
        return reply

    def cost(self) -> Cost:
        """None where somebody did not count, or nobody knows the price."""
        money = None
        if self._prompt is not None and self._completion is not None:
            money = self._model.price(self._prompt, self._completion)
        return Cost(self._calls, self._prompt, self._completion, money)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
