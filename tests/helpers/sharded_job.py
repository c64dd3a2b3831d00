"""A training job in one of several CPU processes under FSDP: `torchrun ... sharded_job.py JOB.json`.

accelerate shards for accelerators alone: on CPUs it would make whole copies without a word. All else of FSDP runs there.
"""

import sys
from typing import Any

from accelerate.state import AcceleratorState, DistributedType, PartialState

from components.training import job

_begin = AcceleratorState.__init__


def _sharded(self: Any, *given: Any, fsdp_plugin: Any = None, **named: Any) -> None:
    """As accelerate begins on GPUs."""
    _begin(self, *given, fsdp_plugin=fsdp_plugin, **named)
    if fsdp_plugin is not None:
        self.fsdp_plugin = fsdp_plugin
        self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP


AcceleratorState.__init__ = _sharded

if __name__ == "__main__":
    sys.exit(job.main(sys.argv[1:]))
