"""The flywheel, whole: a service that the champion runs sends its spans, its users say later what was solved, and a night that
plays nothing itself learns from them.

    python benchmarks/flywheel.py [--scale smoke] [--tasks 500] [--attempts 2] [--seed 21]

Run it in a clone that has a champion (`ratchet night`). The service is simulated: it plays train tasks with the champion, and
OpenTelemetry's SDK with its OTLP exporter reports each model and tool call as a span. The verdicts
of the tasks' own tests arrive afterwards as feedback, for nine of ten conversations. The night takes SCALE as it is, with a section
`traffic`, and decides on held-out tasks as always.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import yaml

import ratchet
from ratchet.components.core.home import home
from ratchet.components.nights.scale_config import SCALES_FOLDER, named_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))


def main() -> None:
    """Run the service, then the night, and print the figures of both as JSON."""
    from receiver_process import receiving
    from simulated_service import serve_episodes, tracer_provider

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=21)
    options = parser.parse_args()
    scale = yaml.safe_load(named_file("scale", options.scale, SCALES_FOLDER).read_bytes())
    settings = {name: scale[name] for name in ("max_turns", "max_new_tokens") if name in scale}
    served = list(
        ratchet.collect(
            scale["taskset"],
            "champion",
            tasks=options.tasks,
            attempts=options.attempts,
            seed=options.seed,
            temperature=1.0,
            workers=16,
            **settings,
        )
    )
    begin = time.monotonic()
    with receiving(home()) as receiver:
        provider = tracer_provider(receiver.url, receiver.key)
        ids = serve_episodes(provider, served)
        provider.force_flush(600_000)
        provider.shutdown()
        seconds = time.monotonic() - begin
        notes = [
            {"conversation_id": name, "success": episode.outcome.success}
            for number, (name, episode) in enumerate(zip(ids, served, strict=True))
            if number % 10
        ]
        with httpx.Client(base_url=receiver.url, headers=receiver.headers, timeout=60) as client:
            for _ in range(2):  # the second time as a client that lost the answer
                client.post("/v1/feedback", json=notes).raise_for_status()
            received = client.get("/v1/status").json()
    flywheel = home() / "traffic" / "flywheel.yaml"
    flywheel.write_text(yaml.safe_dump(scale | {"traffic": {"quiet_minutes": 0}}))
    night = [
        sys.executable,
        "-m",
        "ratchet.cli",
        "night",
        "--scale",
        str(flywheel),
        "--seed",
        str(options.seed),
        "--json",
    ]
    answer = subprocess.run(night, stdout=subprocess.PIPE, text=True, check=True).stdout.strip().splitlines()[-1]
    decision = json.loads(answer)
    figures = {
        "served": len(served),
        "solved": sum(bool(episode.outcome.success) for episode in served),
        "seconds_of_sending": round(seconds, 1),
        "received": received,
        "verdict": decision["verdict"],
        "success": {name: decision[name]["success"]["value"] for name in ("champion", "challenger", "control")},
        "decision": {name: decision[name] for name in ("reasons", "self_improvement") if name in decision},
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
