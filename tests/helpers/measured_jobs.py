"""Run training jobs in this process, one after the other, and print what each logged and how much memory it took.

python measured_jobs.py JOB.json [JOB.json ...] prints a line of JSON: for each job its method, the device, the losses, and the
bytes at the peak of the GPU's allocations and by the plan.
"""

import json
import sys
from pathlib import Path

import torch

from ratchet.components.training import job
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.memory_estimate import estimate_memory, model_size


def measure(path):
    config = load_job(path)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    job.run(config)
    logs = map(json.loads, (config.output / "metrics.jsonl").read_text().splitlines())
    return {
        "method": config.method,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "losses": [entry["loss"] for entry in logs if "loss" in entry],
        "peak": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "planned": estimate_memory(config, model_size(config.model)).total,
    }


if __name__ == "__main__":
    print(json.dumps([measure(Path(path)) for path in sys.argv[1:]]))
