"""Section `run`: the process or processes of a job. Nothing here changes what is learned."""

from pydantic import Field

from components.protocol.configuration import Configuration


class Run(Configuration):
    """`launch`: `single`, the name of one of Ratchet's configurations of accelerate (components/training/launch), or a path to
    another. `threads`: of each process; all cores, where not given. A file is touched every `heartbeat_seconds`.
    """

    threads: int | None = Field(None, gt=0)
    launch: str = "single"
    heartbeat_seconds: float = Field(10.0, gt=0)
