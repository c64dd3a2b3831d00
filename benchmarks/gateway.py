"""Fidelity and latency of the gateway: are the recorded token ids those that were sampled, and how long does it take?

    python benchmarks/gateway.py [--sessions 200] [--prompt-bytes 30000] [--python INTERPRETER] [--out FILE.json]

A scripted endpoint stands behind a real `ratchet gateway`: it speaks vLLM's chat API, draws token ids at random, and keeps
what it drew. Clients are the SDKs of OpenAI (Chat Completions, Responses) and Anthropic, in a process of their own (`--python`:
an interpreter that has `openai`, `anthropic` and `httpx`), streaming and not, with no call, one or several parallel ones a turn.

Fidelity compares every recorded prompt, completion and log-probability with the endpoint's own list, after the gateway was
killed (SIGKILL). Latency is measured by plain HTTP requests, in turn to the endpoint and through the gateway: alone, and while
`--sessions` sessions are open. Everything shares this machine's cores: `noise_ms` is the difference of two requests that both
went to the endpoint, the part of `added_ms` that client, endpoint and scheduler cause.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

THINK_SECONDS = 4.0
"""How long an agent works between two requests: 200 agents then send 50 requests a second."""
TURNS = 4
SAMPLE_SECONDS = 0.05
"""How long the scripted endpoint takes for a reply."""

ENDPOINT = """
import asyncio, json, random, sys
import uvicorn
log = open(sys.argv[2], "a", buffering=1)
rng = random.Random(0)
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"].endswith("/models"):
        answer = {"data": [{"id": "scripted", "max_model_len": 1000000}]}
    else:
        asked = json.loads(body)
        await asyncio.sleep(float(sys.argv[3]))
        new = [rng.randrange(150000) for _ in range(rng.randrange(1, 60))]
        prompt = [byte for byte in json.dumps(asked["messages"]).encode()[:4000]]
        logprobs = [round(-rng.random() * 5, 6) for _ in new]
        # Letters, not digits: a long number is taken for a personal one, and redaction would leave out its token ids.
        number = "".join(rng.choices("abcdefghijklmnop", k=16))
        calls = [
            {"id": f"c{i}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": f"{number}-{i}"})}}
            for i in range(rng.randrange(0, 4)) if asked.get("tools")
        ]
        text = f"reply {number}"
        log.write(json.dumps([text, prompt, new, logprobs]) + "\\n")
        answer = {
            "id": "x", "object": "chat.completion", "model": "scripted", "created": 0, "prompt_token_ids": prompt,
            "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "token_ids": new,
                "message": {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})},
                "logprobs": {"content": [{"token": "t", "logprob": each} for each in logprobs]}}],
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(new), "total_tokens": len(prompt) + len(new)},
        }
    data = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""

CLIENTS = """
import asyncio, json, sys
import anthropic, openai
base, key, *numbers = sys.argv[1:]
sessions, turns, size, think = int(numbers[0]), int(numbers[1]), int(numbers[2]), float(numbers[3])
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
FILLER = "lorem ipsum dolor sit amet " * (size // 27)

async def chat(client, stream):
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    messages = [{"role": "system", "content": FILLER}, {"role": "user", "content": "go"}]
    for _ in range(turns):
        if stream:
            async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
                async for _ in events:
                    pass
                message = (await events.get_final_completion()).choices[0].message
        else:
            message = (await client.chat.completions.create(model="m", messages=messages, tools=tools)).choices[0].message
        reply = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            reply["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
                for call in message.tool_calls
            ]
        messages.append(reply)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in message.tool_calls or ()]
        if not message.tool_calls:
            messages.append({"role": "user", "content": "on"})
        await asyncio.sleep(think)

async def responses(client, stream):
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    items = [{"role": "user", "content": FILLER}]
    for _ in range(turns):
        if stream:
            async with client.responses.stream(model="m", input=items, tools=tools, instructions="work") as events:
                async for _ in events:
                    pass
                answer = await events.get_final_response()
        else:
            answer = await client.responses.create(model="m", input=items, tools=tools, instructions="work")
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "seen"} for call in calls]
        if not calls:
            items.append({"role": "user", "content": "on"})
        await asyncio.sleep(think)

async def messages(client, stream):
    tools = [{"name": "look", "input_schema": SCHEMA}]
    talk = [{"role": "user", "content": "go"}]
    for _ in range(turns):
        asked = {"model": "m", "max_tokens": 100, "messages": talk, "tools": tools, "system": FILLER}
        if stream:
            async with client.messages.stream(**asked) as events:
                async for _ in events:
                    pass
                answer = await events.get_final_message()
        else:
            answer = await client.messages.create(**asked)
        fields = {"type", "text", "id", "name", "input"}
        talk.append({"role": "assistant", "content": [block.model_dump(include=fields) for block in answer.content]})
        uses = [block for block in answer.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "seen"} for use in uses]
        talk.append({"role": "user", "content": results or "on"})
        await asyncio.sleep(think)

async def main():
    import httpx
    claude, gpt = anthropic.AsyncAnthropic(base_url=base, api_key=key), openai.AsyncOpenAI(base_url=base, api_key=key)
    async with httpx.AsyncClient(timeout=300) as http:
        async def one(number):
            await asyncio.sleep(think * number / sessions * 2)
            name = f"s{number}"
            address = f"{base}/s/{name}"
            kind, stream = number % 3, number % 2 == 0
            if kind == 2:
                await messages(claude.with_options(base_url=address), stream)
            else:
                client = gpt.with_options(base_url=f"{address}/v1")
                await (chat if kind == 0 else responses)(client, stream)
            (await http.post(f"{address}/finish", headers={"x-api-key": key}, json={"success": True})).raise_for_status()
        await asyncio.gather(*map(one, range(sessions)))

asyncio.run(main())
"""


async def _latencies(urls: list[tuple[str, str]], seconds: float, size: int) -> list[list[float]]:
    """Return the milliseconds of requests to each address, sent in turn for `seconds`."""
    import httpx

    filler, times = "lorem ipsum " * (size // 12), [[] for _ in urls]  # type: list[list[float]]
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            # Each request starts a new conversation in a new session, so that the gateway knows no prefix of it.
            body = {
                "model": "scripted",
                "messages": [{"role": "system", "content": filler}, {"role": "user", "content": str(number)}],
            }
            for index, (url, key) in enumerate(urls):
                begin = time.perf_counter()
                answer = await http.post(url, json=body, headers={"Authorization": f"Bearer {key}"})
                times[index].append((time.perf_counter() - begin) * 1000)
                answer.raise_for_status()
    return times


def _quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "requests": len(values)}


def _added(direct: list[float], through: list[float], again: list[float]) -> dict[str, Any]:
    added, noise = ([two - one for one, two in zip(direct, other, strict=True)] for other in (through, again))
    values = {"direct_ms": direct, "gateway_ms": through, "added_ms": added, "noise_ms": noise}
    return {name: _quantiles(each) for name, each in values.items()}


def _check_fidelity(log: Path, store: Path) -> dict[str, Any]:
    """Compare the recorded turns with what the endpoint drew. Each reply's text names it."""
    import numpy as np

    from ratchet.components.trajectories.shards import read_folder
    from ratchet.components.trajectories.token_sidecar import read_tokens

    drawn = {row[0]: row[1:] for row in map(json.loads, log.read_text().splitlines())}
    records = {record.episode_id: record for record in read_folder(store / "shards")}
    equal = unequal = sessions = turns = 0
    contexts: dict[str, list[int]] = {}
    for sidecar in sorted((store / "shards").glob("tokens-*.parquet")):
        for row in read_tokens(sidecar):
            trace = row.trace
            if records[row.episode_id].outcome.success is None:
                continue  # a probe of the latency, which was not finished when the gateway was killed
            prompt, new, logprobs = drawn[records[row.episode_id].turns[row.turn].text]
            whole = [*contexts.get(row.episode_id, [])[: trace.kept], *trace.prompt_ids]
            contexts[row.episode_id] = [*whole, *trace.completion_ids]
            same = whole == prompt and list(trace.completion_ids) == new
            same = same and np.array_equal(np.float32(trace.logprobs), np.float32(logprobs))
            equal, unequal = equal + same, unequal + (not same)
    for record in records.values():
        if record.provenance.source == "gateway" and record.outcome.success:
            sessions, turns = sessions + 1, turns + len(record.turns)
    return {"sessions": sessions, "turns": turns, "equal": equal, "unequal": unequal, "share": equal / max(1, turns)}


def main() -> None:
    """Run the benchmark and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--prompt-bytes", type=int, default=30_000)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from ratchet.components.core.processes import free_port

    folder = Path(tempfile.mkdtemp(prefix="gateway-benchmark-"))
    log, port = folder / "drawn.jsonl", free_port()
    log.touch()
    policy = folder / "scripted.yaml"
    policy.write_text(
        f"base_url: http://127.0.0.1:{port}/v1\nmodel: scripted\nserver: vllm\nlogprobs: true\nconcurrency: 256\n"
    )
    environment = {**os.environ, "RATCHET_HOME": str(folder / "home")}
    endpoint = subprocess.Popen([sys.executable, "-c", ENDPOINT, str(port), str(log), str(SAMPLE_SECONDS)])
    command = [sys.executable, "-m", "ratchet.cli", "gateway", f"openai:{policy}", "--json"]
    gateway = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += gateway.stdout.readline()
        ready = json.loads(text)
        key = Path(ready["key_file"]).read_text().strip()
        base = ready["anthropic_base_url"]
        direct = (f"http://127.0.0.1:{port}/v1/chat/completions", "none")
        urls = [direct, (f"{base}/s/probe/v1/chat/completions", key), direct]
        alone = _added(*asyncio.run(_latencies(urls, options.seconds, options.prompt_bytes)))
        begin = time.monotonic()
        arguments = [base, key, options.sessions, TURNS, options.prompt_bytes, THINK_SECONDS]
        clients = subprocess.Popen([options.python, "-c", CLIENTS, *map(str, arguments)])
        time.sleep(THINK_SECONDS * 2)
        busy = _added(*asyncio.run(_latencies(urls, options.seconds, options.prompt_bytes)))
        if clients.wait() != 0:
            raise SystemExit("the clients failed")
        seconds = time.monotonic() - begin
        import psutil

        cpu = sum(psutil.Process(gateway.pid).cpu_times()[:2])
        # Every client was told that its session is finished: a kill now may lose none of them.
        gateway.kill()
        gateway.wait()
        fidelity = _check_fidelity(log, Path(ready["store"]))
    finally:
        for process in (gateway, endpoint):
            process.kill()
            process.wait()
    figures = {
        "sessions": options.sessions,
        "prompt_bytes": options.prompt_bytes,
        "seconds": round(seconds, 1),
        "gateway_cpu_seconds": round(cpu, 2),
        "finished_sessions_after_kill": fidelity["sessions"],
        "fidelity": fidelity,
        "alone": alone,
        "busy": busy,
    }
    print(json.dumps(figures, indent=1))
    figures["load"] = os.getloadavg()[0]
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
