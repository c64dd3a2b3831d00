"""In which order tasks come: the seed and the place alone say so, and a job goes on after a kill as if there had been none.

(TRL's own sampler begins its first epoch again in a job that goes on.)
"""

import numpy as np

from .outing import seed_of


def places(count: int, start: int, number: int, seed: int) -> list[int]:
    """`number` places among `count` things from `start` on, where each epoch is a permutation of its own."""
    found: list[int] = []
    for place in range(start, start + number):
        epoch, within = divmod(place, count)
        if not found or within == 0:
            order = np.random.default_rng(seed_of(seed, "order", epoch)).permutation(count)
        found.append(int(order[within]))
    return found
