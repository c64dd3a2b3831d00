"""Cohorts as flow runs of a work pool, which Prefect workers on several machines serve.

A machine's worker serves the pool with `infra/worker/start.sh rollouts`. A run that failed, or whose worker Prefect has
declared offline, is created anew, so that another machine plays the cohort.
"""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from uuid import UUID

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.errors import first_line
from ratchet.components.core.home import home_tag
from ratchet.components.rollouts.collection_plan import CollectPlan

POOL = "rollouts"
DEPLOYMENT = f"collect-cohort/{POOL}"
MAX_RUNS = 100
"""Runs that wait or play at once: more would only be polled."""
MAX_TRIES = 5
POLL_SECONDS = 2.0
PENDING_SECONDS = 900.0
"""Seconds after which a run that a worker has taken and not begun counts as lost."""
WORKER_LABEL = "ratchet.worker"
"""Label of a run: the name of its worker. Prefect's own names the last worker that tried to take the run, not the one that did."""


def play_by_workers(plan: CollectPlan, location: str, numbers: Iterable[int]) -> Iterator[int | None]:
    """Play cohorts by flow runs of DEPLOYMENT; yield the number of each one that has ended, and None after each poll.

    Raises ConfigurationError without that deployment, InfrastructureError for a cohort that failed MAX_TRIES times or a
    server that does not answer. The other runs are then cancelled.
    """
    import httpx

    try:
        yield from _play_runs(location, deque(numbers))
    except httpx.HTTPError as error:
        raise InfrastructureError(
            f"the Prefect server does not answer or refuses: {first_line(error)}; run the same command again"
        ) from error


def _play_runs(location: str, waiting: deque[int]) -> Iterator[int | None]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Cancelling, Crashed

    running, tries = dict[UUID, int](), Counter[int]()
    with get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment_by_name(DEPLOYMENT)
        except ObjectNotFound as error:
            raise ConfigurationError(
                f"the Prefect server has no deployment {DEPLOYMENT}; start a worker: infra/worker/start.sh {POOL}"
            ) from error
        try:
            while waiting or running:
                while waiting and len(running) < MAX_RUNS:
                    number = waiting.popleft()
                    parameters, tags = {"location": location, "number": number}, [home_tag()]
                    run = client.create_flow_run_from_deployment(deployment.id, parameters=parameters, tags=tags)
                    running[run.id] = number
                time.sleep(POLL_SECONDS)
                workers = client.read_workers_for_work_pool(POOL)
                offline = {worker.name for worker in workers if worker.status == "OFFLINE"}
                ids = FlowRunFilterId(any_=list(running))
                for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(id=ids), limit=MAX_RUNS):
                    assert run.state is not None
                    worker = run.labels.get(WORKER_LABEL)
                    # Before a run has begun it has no such label, and beginning takes seconds.
                    is_late = run.state.is_pending() and time.time() - run.state.timestamp.timestamp() > PENDING_SECONDS
                    is_lost = is_late or (not run.state.is_final() and worker in offline)
                    if is_lost:
                        client.set_flow_run_state(run.id, Crashed(message="its worker was lost"), force=True)
                    if not (is_lost or run.state.is_final()):
                        continue
                    number = running.pop(run.id)
                    if run.state.is_completed():
                        yield number
                        continue
                    tries[number] += 1
                    if tries[number] == MAX_TRIES:
                        raise InfrastructureError(
                            f"cohort {number} failed {MAX_TRIES} times, last on {worker}: "
                            f"{run.state.message}; see flow run {run.name} in Prefect, then run the same command again"
                        )
                    waiting.append(number)
                yield None
        finally:
            for run_id in running:
                with contextlib.suppress(Exception):  # the server may be what failed
                    client.set_flow_run_state(run_id, Cancelling())
