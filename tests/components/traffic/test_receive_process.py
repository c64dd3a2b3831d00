"""`ratchet receive` as a process, with OpenTelemetry's own SDK and exporter as the client; and killed at every write."""

import random
import shutil
import signal
import subprocess
import threading
import time

import httpx
import pytest
from receiver_process import receiving, start
from simulated_service import serve_episodes, tracer_provider

import ratchet
from ratchet.components.traffic.traffic_episodes import conversation_episodes
from ratchet.components.traffic.traffic_store import TrafficStore

pytestmark = pytest.mark.slow


def conversations(home):
    store = TrafficStore(home / "traffic" / "traffic.db")
    found = list(store.settled(0))
    store.close()
    return found


def essence(episode):
    """The part of an episode that a dataset is made of."""
    turns = [
        (
            turn.text,
            turn.thought,
            [(call.tool, call.arguments) for call in turn.calls],
            [item.content for item in turn.results],
        )
        for turn in episode.turns
    ]
    return episode.messages, turns, episode.source_extra["tools"], episode.outcome.success


def test_what_a_service_sends_by_the_sdk_becomes_the_episodes_that_it_served(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http")
    served = list(ratchet.collect("orders", agent="teacher", tasks=4))
    with receiving(tmp_path / "home") as receiver:
        provider = tracer_provider(receiver.url, receiver.key)
        ids = serve_episodes(provider, served)
        assert provider.force_flush()
        provider.shutdown()
        notes = [
            {"conversation_id": name, "success": one.outcome.success} for name, one in zip(ids, served, strict=True)
        ]
        assert httpx.post(f"{receiver.url}/v1/feedback", json=notes, headers=receiver.headers).status_code == 200
    received = [one for item in conversations(tmp_path / "home") for one in conversation_episodes(item)]
    # The recorder of this repository keeps personal data that it invented; the receiver keeps none.
    wanted = [essence(ratchet.sanitise([one])[0]) for one in served]
    assert [len(turns) for _, turns, _, _ in map(essence, received)] == [len(turns) for _, turns, _, _ in wanted]
    assert [(tools, success) for _, _, tools, success in map(essence, received)] == [
        (tools, ok) for _, _, tools, ok in wanted
    ]


def test_programs_that_do_not_know_the_key_or_come_from_a_web_page_are_refused(tmp_path):
    with receiving(tmp_path / "home") as receiver:
        send = lambda headers: httpx.post(f"{receiver.url}/v1/traces", json={}, headers=headers).status_code  # noqa: E731
        assert send({}) == send({"Authorization": "Bearer wrong"}) == 401
        assert send(receiver.headers | {"Origin": "https://example.org"}) == 403
        assert send(receiver.headers | {"Host": "rebound.example.org"}) == 403
        assert send(receiver.headers) == 200
        assert (tmp_path / "home").stat().st_mode & 0o077 == 0


def test_a_home_has_one_receiver(tmp_path):
    with receiving(tmp_path / "home"):
        second = start(tmp_path / "home")
        assert second.process.wait(30) == 2
        assert "receives already at http://127.0.0.1" in (tmp_path / "home.log").read_text()


def batch(number):
    spans = [
        {"traceId": f"{number:032x}", "spanId": f"{index:016x}", "name": "x" * 400, "attributes": []}
        for index in range(1, 4)
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


class Client:
    """Sends batches in order; a batch without an answer is sent again, as an exporter does."""

    def __init__(self):
        self.acknowledged: list[int] = []
        self.next = 1

    def send(self, receiver, count):
        with httpx.Client(headers=receiver.headers, timeout=10) as client:
            for _ in range(count):
                try:
                    answer = client.post(f"{receiver.url}/v1/traces", json=batch(self.next))
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    self.acknowledged.append(self.next)
                    self.next += 1

    def check(self, home):
        stored = {int(one.traces[0], 16): len(one.spans) for one in conversations(home)}
        assert all(stored.get(number) == 3 for number in self.acknowledged), "no acknowledged span is lost"
        assert set(stored.values()) <= {3} and set(stored) <= {*self.acknowledged, self.next}


def test_a_kill_at_any_moment_loses_no_acknowledged_span_and_doubles_none(tmp_path):
    draw, client, home = random.Random(21), Client(), tmp_path / "home"
    for kill in range(1, 5):
        receiver = start(home)
        killer = threading.Thread(target=kill_after, args=(receiver.process, client, 6 * kill, draw.uniform(0, 0.03)))
        killer.start()
        client.send(receiver, 10_000)
        assert receiver.process.wait(30) == -signal.SIGKILL
        killer.join()
        client.check(home)
    assert len(client.acknowledged) >= 24


def kill_after(process, client, acknowledged, seconds):
    while len(client.acknowledged) < acknowledged:
        time.sleep(0.002)
    time.sleep(seconds)
    process.kill()


@pytest.mark.long
def test_a_kill_at_every_write_loses_no_acknowledged_span_and_doubles_none(tmp_path):
    """strace kills the process instead of the n-th write or sync of the file, for each n, over the same home."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    client, home, kills = Client(), tmp_path / "home", 0
    for call in ("pwrite64", "fdatasync"):
        number, died = 0, True
        while died and number < 25:
            number += 1
            inject = f"inject={call}:signal=SIGKILL:when={number}"
            receiver = start(
                home, before=("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
            )
            client.send(receiver, 6)
            time.sleep(0.1)
            died = receiver.process.poll() is not None
            if not died:
                for child in subprocess.run(
                    ["pgrep", "-P", str(receiver.process.pid)], capture_output=True, text=True, check=True
                ).stdout.split():
                    subprocess.run(["kill", "-9", child], check=False)
                receiver.process.wait(10)
            kills += died
            client.check(home)
    assert kills > 20
