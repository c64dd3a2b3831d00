"""Watch the services of a home: end a server that does not answer, and restart a run of the nightly flow that crashed.

A supervisor starts a service that has ended, but it does not see one that hangs. `python -m ratchet.flows.service_watch`
runs until it is ended; PREFECT_API_URL names the Prefect server.
"""

import os
import signal
import time
from collections import Counter

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import is_healthy, recorded_address, recorded_process, server_title
from ratchet.flows.night_schedule import DEPLOYMENT, restart_if_crashed

CHECK_SECONDS = 15.0
"""Seconds between two checks."""
MAX_FAILED_CHECKS = 4
"""Checks in a row that a server may fail before it is ended."""
ANSWER_SECONDS = 10.0
"""Seconds that a server may take to answer."""


def end_if_hung(name: str, failed: Counter[str]) -> bool:
    """End a server of this home that has failed MAX_FAILED_CHECKS checks in a row, which `failed` counts; return whether
    it was ended.
    """
    url, process = recorded_address(name), recorded_process(name)
    try:
        answers = url is None or process is None or is_healthy(name, url, timeout=ANSWER_SECONDS)
    except ConfigurationError:  # it refuses, which is an answer
        answers = True
    failed[name] = 0 if answers else failed[name] + 1
    if failed[name] < MAX_FAILED_CHECKS or process is None:
        return False
    failed[name] = 0
    os.kill(process, signal.SIGTERM)  # its guard, which kills what does not end
    return True


def main() -> None:
    """Check for ever."""
    from prefect.client.orchestration import get_client

    failed: Counter[str] = Counter()
    while True:
        time.sleep(CHECK_SECONDS)
        for name in ("prefect", "mlflow"):
            if end_if_hung(name, failed):
                print(f"{server_title(name)} did not answer and is started again", flush=True)
        try:
            with get_client(sync_client=True) as client:
                if (message := restart_if_crashed(client, f"nightly/{DEPLOYMENT}")) is not None:
                    print(message, flush=True)
        except Exception as error:  # the server is away: the next check tries again
            print(f"could not check for crashed runs: {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
