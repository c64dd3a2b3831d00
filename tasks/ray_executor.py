"""Cohorts as tasks of a Ray cluster. Ray places them, grows the cluster, and repeats what a lost node was playing.

A policy that starts a model server runs in an actor for each GPU of the cluster; the cohorts, with their sandboxes, run
where there are processors and ask it. This module is imported on the nodes, so it does not import Prefect.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Any

import msgspec

from ratchet.components.core import (
    ConfigurationError,
    InfrastructureError,
    Policy,
    PolicyReply,
    PolicyRequest,
    RatchetError,
)
from ratchet.components.core.errors import first_line, install_command
from ratchet.components.models.policy_factory import started_server_gpus
from ratchet.components.operations.shared_collection import read_shared_plan, shared_cohort
from ratchet.components.rollouts.collection import LoadedAgent, collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.rollouts.episode_runner import prepare_policy
from ratchet.components.tasksets import load_taskset

MAX_RETRIES = 5
"""Times that a cohort, or the actor of a policy, is started again after the loss of its node or an InfrastructureError."""
POLL_SECONDS = 1.0
_connecting = threading.Lock()


class ServedPolicy:
    """The Ray actor that holds the policy of a shared collection on a GPU."""

    def __init__(self, location: str) -> None:
        plan = read_shared_plan(location)
        self._policy = prepare_policy(plan, load_taskset(plan.taskset))

    def describe(self) -> dict[str, Any]:
        """Return the attributes of the policy, by name."""
        return {name: getattr(self._policy, name) for name in Policy.__annotations__}

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Answer requests as `Policy.act` does."""
        return self._policy.act(requests)


class RemotePolicy(Policy):
    """A policy whose requests an actor ServedPolicy answers."""

    def __init__(self, actor: Any) -> None:
        import ray

        self._actor = actor
        for name, value in _result(partial(ray.get, actor.describe.remote())).items():
            setattr(self, name, value)

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Send the requests to the actor; raises InfrastructureError where it is lost."""
        import ray

        # Messages are a view of a list that grows: Ray would send the whole of it.
        copies = [msgspec.structs.replace(request, messages=list(request.messages)) for request in requests]
        replies: list[PolicyReply] = _result(partial(ray.get, self._actor.act.remote(copies)))
        return replies


def collect_cohort(location: str, number: int, server: Any = None) -> None:
    """Play one cohort of a shared collection in this process; `server`: actor of its policy (None: load it here)."""
    with shared_cohort(location, number) as (plan, folder):
        collect(plan, folder, cohort=number, agent=LoadedAgent(RemotePolicy(server)) if server is not None else None)


def play_on_ray(plan: CollectPlan, location: str, numbers: Iterable[int]) -> Iterator[int | None]:
    """Play cohorts on the cluster that RAY_ADDRESS names (default: that of this machine); yield the number of each one that
    has ended, and None about every second. Raises what a cohort raised; the others are then cancelled.
    """
    ray = _connect()
    retries = {"max_retries": MAX_RETRIES, "retry_exceptions": [InfrastructureError]}
    play = ray.remote(num_cpus=1, **retries)(collect_cohort)
    with _policy_servers(plan, location) as servers:
        pending = {play.remote(location, number, server): number for number, server in zip(numbers, cycle(servers))}
        try:
            while pending:
                ended, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                for reference in ended:
                    _result(partial(ray.get, reference))
                    yield pending.pop(reference)
                yield None
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _connect() -> Any:
    """Return the module ray, connected to the cluster. Raises ConfigurationError, InfrastructureError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigurationError(
            f"executor: ray needs the package ray; install it: {install_command('ray')}"
        ) from error
    with _connecting:  # several agents are evaluated at once, from threads
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS", "auto")
            host, _, port = address.rpartition(":")
            try:
                if host and port.isdigit() and "://" not in address:  # Ray itself tries for minutes
                    socket.create_connection((host, int(port)), timeout=10).close()
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:  # Ray has no one error for it
                raise InfrastructureError(
                    f"no Ray cluster answers ({first_line(error)}); start one with `ray start --head`, or set RAY_ADDRESS"
                ) from error
    return ray


@contextmanager
def _policy_servers(plan: CollectPlan, location: str) -> Iterator[list[Any]]:
    """Yield an actor for each server that the cluster has GPUs for, where the policy starts servers, else [None]."""
    import ray

    if not (each := started_server_gpus(plan.policy)):
        yield [None]
        return
    gpus = int(ray.cluster_resources().get("GPU", 0))
    options = {"num_cpus": 0, "num_gpus": each if gpus else 0, "max_concurrency": 16 * plan.concurrency}
    actor = ray.remote(**options, max_restarts=MAX_RETRIES, max_task_retries=MAX_RETRIES)(ServedPolicy)
    servers = [actor.remote(location) for _ in range(max(gpus // each, 1))]
    try:
        yield servers
    finally:
        for server in servers:
            ray.kill(server)


def _result(get: Callable[[], Any]) -> Any:
    """Return what `get` returns; an error of the task is raised as it was, one of the cluster as InfrastructureError."""
    import ray

    try:
        return get()
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RatchetError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise InfrastructureError(
            f"the Ray cluster lost a cohort: {first_line(error)}; run the same command again"
        ) from error
