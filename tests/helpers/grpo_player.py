"""A player without a world: one reply an attempt, and a reward for letters in it. A tiny model learns it in some steps."""

import queue
import threading

from episodes import make_episode, turn
from msgspec.structs import replace
from small_model import TASK, TOOLS

from ratchet.components.core import (
    EpisodePlayer,
    EpisodeStream,
    InfrastructureError,
    PlayableTask,
    PlayedEpisode,
    PolicyRequest,
)


class Letters(EpisodePlayer):
    """Breaks at the call whose number is `break_at`, as a world would; the counter is the class's, over all jobs."""

    calls = 0
    break_at = None

    def __init__(self, settings):
        self.settings = settings

    def tasks(self):
        return [
            PlayableTask(f"repair/t{number}", f"f{number % 2}", "k") for number in range(self.settings.get("tasks", 6))
        ]

    def play(self, policy, attempts):
        type(self).calls += 1
        if type(self).calls == self.break_at:
            raise InfrastructureError("the world is away")
        requests = [
            PolicyRequest(f"{each.task_id}/{each.stream}", each.task_id, 0, each.stream, [self._opening(each)], TOOLS)
            for each in attempts
        ]
        return [
            PlayedEpisode(self._record(attempt, reply.text), (reply.tokens,) if reply.tokens else ())
            for attempt, reply in zip(attempts, policy.act(requests), strict=True)
        ]

    def stream(self, policy):
        return LettersStream(self, policy)

    def _opening(self, attempt):
        return {**TASK, "content": f"{TASK['content']} {attempt.task_id}"}

    def _record(self, attempt, text):
        said = replace(turn(0, "submit"), text=text)
        return make_episode(attempt.task_id, attempt.number, success=letters_in(text) > 0.3, turns=(said,))


class LettersStream(EpisodeStream):
    """Each attempt on a thread of its own. An error of one is raised by `wait`."""

    def __init__(self, player, policy):
        self.player, self.policy, self.ended = player, policy, queue.SimpleQueue()

    def submit(self, attempt):
        threading.Thread(target=self._play, args=(attempt,), daemon=True).start()

    def _play(self, attempt):
        try:
            self.ended.put((attempt, self.player.play(self.policy, [attempt])[0]))
        except Exception as error:
            self.ended.put(error)

    def wait(self):
        try:
            item = self.ended.get(timeout=0.05)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def close(self):
        pass


def letters_in(text):
    return sum(each in "aeiou" for each in text) / max(8, len(text))


def letters(trajectory):
    """The component of the reward."""
    return letters_in(trajectory.turns[0].text)


def constant(trajectory):
    return 0.5
