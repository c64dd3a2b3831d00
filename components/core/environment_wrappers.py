"""Environment wrappers in Gymnasium's style, and the adapter to Gymnasium's own interface.

`wrap` applies several wrappers, the first innermost:

    wrap(env, MaxSteps, partial(Timeout, seconds=60), EpisodeStatistics)
"""

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from .contracts import Action, Environment, TimeStep
from .errors import ConfigurationError
from .task_spec import TaskSpec, ToolResult, ToolSpec

if TYPE_CHECKING:
    import gymnasium


def wrap(env: Environment, *layers: Callable[[Environment], Environment]) -> Environment:
    """Apply wrappers to `env`, the first innermost. A layer is a wrapper class, or a `partial` of it.

    >>> env = ratchet.wrap(ratchet.make("ratchet/conversation"), ratchet.MaxSteps, ratchet.EpisodeStatistics)
    >>> env.domain
    'conversation'
    """
    env = as_environment(env)
    for layer in layers:
        env = layer(env)
    return env


class AdaptedEnvironment(Environment):
    """An object with at least `reset`, `step` and `available_tools`, as an Environment; other methods are optional."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.domain = str(getattr(inner, "domain", "generic"))

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the object, with free parameters where it describes none."""
        return tuple(self.inner.tools) if hasattr(self.inner, "tools") else super().tools

    @property
    def available_tools(self) -> tuple[str, ...]:
        """Names of the tools."""
        return tuple(self.inner.available_tools)

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Reset the object."""
        return _checked(self.inner.reset(task=task, seed=seed), self.inner, "reset")

    def step(self, action: Action) -> TimeStep:
        """Step the object."""
        return _checked(self.inner.step(action), self.inner, "step")

    def finish(self, reason: str) -> TimeStep:
        """End the episode by the object's `finish`, else without a grade."""
        own = getattr(self.inner, "finish", None)
        return super().finish(reason) if own is None else _checked(own(reason), self.inner, "finish")

    def close(self) -> None:
        """Close the object where it has `close`."""
        getattr(self.inner, "close", super().close)()


def _checked(step: Any, inner: Any, method: str) -> TimeStep:
    if isinstance(step, TimeStep):
        return step
    name = type(inner).__name__
    raise ConfigurationError(f"{name}.{method} returned {type(step).__name__}; return a ratchet.TimeStep")


def as_environment(value: Any) -> Environment:
    """Return `value` if it is an Environment, else an adapter of its `reset`, `step` and `available_tools`.

    Raises ConfigurationError where it lacks one of them.
    """
    if isinstance(value, Environment):
        return value
    missing = [name for name in ("reset", "step", "available_tools") if not hasattr(value, name)]
    if missing:
        raise ConfigurationError(f"{type(value).__name__} is no environment: it has no `{missing[0]}`")
    return AdaptedEnvironment(value)


class Wrapper(Environment):
    """Base class of wrappers: forward calls to `env`. Subclasses override `transform_reset` and `transform_step`."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.domain = env.domain
        self._last: TimeStep | None = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the wrapped environment."""
        return self.env.tools

    @property
    def unwrapped(self) -> Environment:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Reset the wrapped environment and apply `transform_reset`."""
        self._last = None
        return self.transform_reset(self.env.reset(task=task, seed=seed))

    def step(self, action: Action) -> TimeStep:
        """Step the wrapped environment and apply `transform_step`."""
        # A user's own environment need not repeat its last TimeStep after the end, so the wrapper does.
        return self._last or self._remember_end(self.transform_step(action, self.env.step(action)))

    def finish(self, reason: str) -> TimeStep:
        """End the episode of the wrapped environment and apply `transform_step` without an action."""
        return self._last or self._remember_end(self.transform_step(None, self.env.finish(reason)))

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """End the episode of the wrapped environment with a reply and apply `transform_step` without an action."""
        return self._last or self._remember_end(self.transform_step(None, self.env.answer(text, truncated=truncated)))

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()

    def transform_reset(self, first: TimeStep) -> TimeStep:
        """Transform the first TimeStep of an episode."""
        return first

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Transform a TimeStep; `action` is None where the episode was ended from outside."""
        return step

    def _remember_end(self, step: TimeStep) -> TimeStep:
        if step.done:
            self._last = step
        return step

    def _truncate(self, step: TimeStep, reason: str) -> TimeStep:
        """End the episode as truncated, keeping the result of the last action, with the outcome of the present state."""
        # Keep the result of the last action: `finish` grades the episode and may return another result.
        last_step = self.env.finish(reason)
        info = {**step.info, **last_step.info}
        if "result" in step.info:
            info["result"] = step.info["result"]
        return TimeStep(
            step.observation, step.reward + last_step.reward, last_step.terminated, last_step.truncated, info
        )


class MaxSteps(Wrapper):
    """Truncate an episode after `limit` steps, with the reason `max_steps`."""

    def __init__(self, env: Environment, limit: int = 30) -> None:
        super().__init__(env)
        self.limit = limit
        self._steps = 0

    def transform_reset(self, first: TimeStep) -> TimeStep:
        """Reset the counter."""
        self._steps = 0
        return first

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Count the step and truncate at the limit."""
        self._steps += 1
        if self._steps < self.limit or step.done:
            return step
        return self._truncate(step, "max_steps")


class Timeout(Wrapper):
    """Truncate an episode `seconds` after its reset, with the reason `timeout`.

    The clock is checked after each step: a running step is not interrupted. `clock` returns the time in seconds.
    """

    def __init__(self, env: Environment, seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(env)
        self.seconds = seconds
        self._clock = clock
        self._until = 0.0

    def transform_reset(self, first: TimeStep) -> TimeStep:
        """Start the clock after the reset."""
        self._until = self._clock() + self.seconds
        return first

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Truncate where the time is over."""
        if self._clock() < self._until or step.done:
            return step
        return self._truncate(step, "timeout")


class Reward(Wrapper):
    """Replace the reward of each step by `reward(action, step)`; `action` is None at `finish`."""

    def __init__(self, env: Environment, reward: Callable[[Action | None, TimeStep], float]) -> None:
        super().__init__(env)
        self._reward = reward

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Replace the reward."""
        return TimeStep(step.observation, self._reward(action, step), step.terminated, step.truncated, step.info)


class EpisodeStatistics(Wrapper):
    """Add `info["episode"]` to the last TimeStep: `r` sum of rewards, `l` number of steps, `t` seconds since the reset."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._reward, self._steps, self._begin = 0.0, 0, 0.0

    def transform_reset(self, first: TimeStep) -> TimeStep:
        """Reset the sums."""
        self._reward, self._steps, self._begin = 0.0, 0, time.perf_counter()
        return first

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Accumulate one step; an end from outside adds its reward and no step."""
        self._reward += step.reward
        self._steps += action is not None
        if not step.done:
            return step
        episode = {"r": self._reward, "l": self._steps, "t": time.perf_counter() - self._begin}
        return msgspec.structs.replace(step, info={**step.info, "episode": episode})


class ObservationTruncate(Wrapper):
    """Cut observations and tool results at `limit` characters, and append the number of characters left out."""

    def __init__(self, env: Environment, limit: int = 8000) -> None:
        super().__init__(env)
        self.limit = limit

    def transform_reset(self, first: TimeStep) -> TimeStep:
        """Cut the first observation."""
        return self._cut(first)

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Cut the observation and the result of a step."""
        return self._cut(step)

    def _cut(self, step: TimeStep) -> TimeStep:
        result: Any = step.info.get("result")
        is_long = isinstance(result, ToolResult) and len(result.content) > self.limit
        if len(step.observation) <= self.limit and not is_long:
            return step
        info = step.info
        if is_long:
            result = msgspec.structs.replace(result, content=self._text(result.content), truncated=True)
            info = {**info, "result": result}
        return msgspec.structs.replace(step, observation=self._text(step.observation), info=info)

    def _text(self, text: str) -> str:
        omitted = len(text) - self.limit
        return text if omitted <= 0 else f"{text[: self.limit]}\n[cut: {omitted} more characters]"


def as_gymnasium(env: Environment, task: TaskSpec | None = None) -> "gymnasium.Env[str, Action]":
    """Return `env` as a Gymnasium environment: `reset` returns `(observation, info)`, `step` the five-tuple.

    Observations are arbitrary text. Actions are `{"tool": str, "params": dict, "thought": str?}`; sampling an action
    gives a random tool with empty parameters. In an environment without tools, an action with an empty tool answers with
    its `thought`. `reset(options={"task": TaskSpec})` chooses the task; without it the
    previous task is played again, `task` at first. Passes `gymnasium.utils.env_checker.check_env` where `env` is
    deterministic. Raises ConfigurationError where gymnasium is not installed.

    >>> task = ratchet.load_taskset("orders").tasks("train")[0]
    >>> env = ratchet.as_gymnasium(ratchet.make("ratchet/conversation"), task)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step({"tool": "respond", "params": {"text": "Hello."}})
    """
    adapter: gymnasium.Env[str, Action] = _gymnasium_adapter()(as_environment(env), task)
    return adapter


@cache
def _gymnasium_adapter() -> Any:
    """Define the adapter class on first use: gymnasium is an optional dependency."""
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigurationError(
            "as_gymnasium needs the package gymnasium; install it: pip install gymnasium"
        ) from error

    class AnyText(gymnasium.spaces.Space[str]):
        """The space of all strings."""

        def __init__(self) -> None:
            super().__init__(shape=(), dtype=None)

        def contains(self, x: Any) -> bool:
            return isinstance(x, str)

        def sample(self, mask: Any = None, probability: Any = None) -> str:
            letters = self.np_random.integers(97, 123, size=8)
            return "".join(chr(letter) for letter in letters)

        @property
        def is_np_flattenable(self) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            return isinstance(other, AnyText)

        def __repr__(self) -> str:
            return "AnyText()"

    class ToolActions(gymnasium.spaces.Space[Action]):
        """The space of actions that name a tool; parameters are validated by the environment."""

        def __init__(self, tools: tuple[str, ...]) -> None:
            super().__init__(shape=None, dtype=None)
            self.tools = tools

        def contains(self, x: Any) -> bool:
            if not isinstance(x, dict) or not x.keys() <= {"tool", "params", "thought", "call_id"}:
                return False
            return isinstance(x.get("tool"), str) and isinstance(x.get("params"), dict)

        def sample(self, mask: Any = None, probability: Any = None) -> Action:
            tool = self.tools[self.np_random.integers(len(self.tools))] if self.tools else ""
            return {"tool": tool, "params": {}}

        @property
        def is_np_flattenable(self) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ToolActions) and self.tools == other.tools

        def __repr__(self) -> str:
            return f"ToolActions({', '.join(self.tools)})"

    class Adapter(gymnasium.Env[str, Action]):
        """The wrapped environment is `env`."""

        metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own attribute

        def __init__(self, env: Environment, task: TaskSpec | None) -> None:
            self.env = env
            self._task = task
            self.observation_space = AnyText()
            self.action_space = ToolActions(env.available_tools)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            self._task = (options or {}).get("task", self._task)
            first = self.env.reset(task=self._task, seed=seed)
            return first.observation, dict(first.info)

        def step(self, action: Action) -> tuple[str, float, bool, bool, dict[str, Any]]:
            replies = not action["tool"] and not self.env.available_tools
            step = self.env.answer(action.get("thought", "")) if replies else self.env.step(action)
            return step.observation, step.reward, step.terminated, step.truncated, dict(step.info)

        def close(self) -> None:
            self.env.close()

    return Adapter
