"""Spans a second that `ratchet receive` takes: senders in processes of their own, the receiver in another, all on this machine.

    python benchmarks/receive.py [--seconds 20] [--senders 2] [--batch 512] [--kind chat|http] [--json]

Each sender posts export requests of protocol buffers, encoded by OpenTelemetry's own encoder and compressed by gzip, one after
the other, as a batch processor does. They are encoded before the clock starts, since a service does that on its own cores; every
request has new ids. `chat`: model calls of an agent with a system prompt, tools and a growing history (1 to 8 kB a span); every
tenth request holds an e-mail address and an API key. `http`: spans of a web framework, of .3 kB.

Each figure is of answered, so durable, spans. Latency is from the post to the answer.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))


WORDS = "the order was shipped on Monday and arrives within three days if the address holds"


def encoded_requests(kind: str, batch: int, count: int, seed: int) -> list[bytes]:
    """Return serialised export requests; no id occurs twice."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    draw = random.Random(seed)
    requests = []
    for number in range(count):
        data = TracesData()
        holder = data.resource_spans.add()
        _attribute(holder.resource, "service.name", "benchmark")
        scope = holder.scope_spans.add()
        for index in range(batch):
            span = scope.spans.add(name="chat m" if kind == "chat" else "GET /orders")
            span.trace_id, span.span_id = draw.randbytes(16), draw.randbytes(8)
            span.start_time_unix_nano = time.time_ns()
            span.end_time_unix_nano = span.start_time_unix_nano + 10**8
            if kind == "chat":
                _chat(span, draw, 1 + index % 8, secret=number % 10 == 0 and index == 0)
            else:
                for name, value in (("http.method", "GET"), ("http.route", "/orders/{id}"), ("user_agent", "k6/0.5")):
                    _attribute(span, name, value)
        requests.append(data.SerializeToString())
    return requests


def _chat(span: Any, draw: random.Random, turns: int, *, secret: bool) -> None:
    words = WORDS.split()
    messages = [{"role": "system", "parts": [{"type": "text", "content": "You answer customers of a shop. " * 12}]}]
    for turn in range(turns):
        text = " ".join(draw.choices(words, k=60))
        if secret and turn == 0:
            text += " I am jane.roe@shop.example.org and the key is sk-proj-4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K"
        call = {"type": "tool_call", "id": f"call_{turn}", "name": "find_order", "arguments": {"order": turn}}
        messages += [
            {"role": "user", "parts": [{"type": "text", "content": text}]},
            {"role": "assistant", "parts": [call]},
        ]
        messages.append(
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": f"call_{turn}", "response": text}]}
        )
    reply = [
        {"role": "assistant", "parts": [{"type": "text", "content": "It is on its way."}], "finish_reason": "stop"}
    ]
    for name, value in (
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.conversation.id", draw.randbytes(16).hex()),
        ("gen_ai.input.messages", json.dumps(messages)),
        ("gen_ai.output.messages", json.dumps(reply)),
    ):
        _attribute(span, name, value)


def _attribute(holder: Any, name: str, value: str) -> None:
    pair = holder.attributes.add(key=name)
    pair.value.string_value = value


def send(url: str, key: str, kind: str, batch: int, seed: int, begin: Any, until: float, out: Any) -> None:
    """Send until the time is over; put the latencies, the sizes and the statuses into `out`."""
    bodies = [gzip.compress(body, 1) for body in encoded_requests(kind, batch, 40 if kind == "chat" else 200, seed)]
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "gzip",
    }
    begin.wait()
    latencies, statuses, sent = [], [], 0
    with httpx.Client(headers=headers, timeout=60) as client:
        end = time.monotonic() + until
        for body in bodies:
            if time.monotonic() > end:
                break
            before = time.monotonic()
            statuses.append(client.post(f"{url}/v1/traces", content=body).status_code)
            latencies.append(time.monotonic() - before)
            sent += len(body)
    out.put((latencies, statuses, sent))


def main() -> None:
    """Run the benchmark and print its figures."""
    from receiver_process import receiving

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--kind", choices=("chat", "http"), default="chat")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    begin, out = context.Barrier(options.senders + 1), context.Queue()
    with tempfile.TemporaryDirectory() as place, receiving(Path(place) / "home") as receiver:
        arguments = (receiver.url, receiver.key, options.kind, options.batch)
        senders = [
            context.Process(target=send, args=(*arguments, seed, begin, options.seconds, out))
            for seed in range(options.senders)
        ]
        for sender in senders:
            sender.start()
        begin.wait()
        started = time.monotonic()
        parts = [out.get() for _ in senders]
        seconds = time.monotonic() - started
        for sender in senders:
            sender.join()
        stored = httpx.get(f"{receiver.url}/v1/status", headers=receiver.headers).json()
        memory = _peak_memory(receiver.process.pid)
        disk = sum(file.stat().st_size for file in (Path(place) / "home" / "traffic").iterdir())
    latencies = sorted(latency for part, _, _ in parts for latency in part)
    answered = sum(status == 200 for _, statuses, _ in parts for status in statuses)
    figures = {
        "kind": options.kind,
        "senders": options.senders,
        "batch": options.batch,
        "spans": stored["spans"],
        "spans_per_second": round(stored["spans"] / seconds),
        "answered_requests": answered,
        "refused_requests": sum(len(statuses) for _, statuses, _ in parts) - answered,
        "latency_p50_ms": round(1000 * statistics.median(latencies), 1),
        "latency_p95_ms": round(1000 * latencies[int(0.95 * len(latencies))], 1),
        "bytes_per_span_sent": round(sum(sent for _, _, sent in parts) / max(stored["spans"], 1)),
        "bytes_per_span_stored": round(disk / max(stored["spans"], 1)),
        "receiver_peak_mib": memory,
        "cores": os.cpu_count(),
    }
    assert stored["spans"] == answered * options.batch, "every answered span is stored, once"
    print(json.dumps(figures) if options.json else "\n".join(f"{name:24} {value}" for name, value in figures.items()))


def _peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
