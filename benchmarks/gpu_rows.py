"""The rows of benchmarks/gpu.py. `main` measures one row and writes its figures to FOLDER/ROW.json.

`torch` and `transfer` need torch and transformers alone, so this file imports Ratchet and TRL inside the rows that use them. A
step is timed from its beginning to that of the next; the first two and the last are left out, and the median counts.
"""

import argparse
import functools
import itertools
import json
import os
import re
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parent.parent
QWEN = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}
"""The published shape of Qwen2.5-0.5B, https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/config.json."""
TINY = QWEN | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TINY |= {"vocab_size": 1024, "max_position_embeddings": 1024}
CUDA = torch.cuda.is_available()
LACKING_ON_CPU = {
    "torch_compile": "torch compiles for minutes on a CPU",
    "use_liger_kernel": "Liger's kernels are compiled for a GPU",
}
"""Options of TRL that a rehearsal leaves out, and why."""
SPARE = 0.85
"""Share of the card's memory that a job may take by its plan."""


class Setting(NamedTuple):
    """Sizes of the rows. `folder`: for files; `lengths`: tokens of a row, the longest that fits the card is taken; `batch`,
    `micro`: rows of a step, and the fewest in memory at a time.
    """

    folder: Path
    shape: dict[str, Any]
    lengths: tuple[int, ...]
    batch: int
    micro: int
    steps: int


def make_setting(folder: Path, rehearse: bool) -> Setting:
    """Return the sizes for a GPU, or those of a rehearsal."""
    if rehearse:
        return Setting(folder, TINY, (512,), 4, 2, 4)
    return Setting(folder, QWEN, (4096, 2048, 1024, 512), 8, 2, 8)


def card(setting: Setting) -> dict[str, Any]:
    """The name and memory of the GPU; of the machine in a rehearsal."""
    if CUDA:
        return {"card": torch.cuda.get_device_name(), "memory_gib": torch.cuda.mem_get_info()[1] / 2**30}
    if setting.shape is QWEN:
        return {"status": "failed", "reason": f"torch {torch.__version__} finds no CUDA GPU on this machine"}
    return {"card": "CPU", "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30}


def mfu(config: Any, length: int, tokens_per_second: float) -> float | None:
    """Return the model FLOPs utilisation at rows of `length` tokens; None for an unknown card, or without TRL."""
    try:
        from trl.trainer.utils import compute_flops_per_token, compute_mfu, get_peak_flops
    except ImportError:
        return None
    peak = get_peak_flops(torch.cuda.get_device_name() if CUDA else "CPU", "bfloat16")
    flops = compute_flops_per_token(config, length)
    return None if peak is None else compute_mfu(flops, tokens_per_second, 1, peak) / 100


def peak_gib() -> float:
    """Return the most memory that torch had allocated on the GPU; without one, that this process had."""
    used = torch.cuda.max_memory_allocated() if CUDA else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2**30


def timed(action: Callable[[], Any]) -> float:
    """Return the seconds of an action, with all that it started on the GPU."""
    _synchronize()
    begin = time.perf_counter()
    action()
    _synchronize()
    return time.perf_counter() - begin


def _synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def make_model(setting: Setting) -> Any:
    """Return a model of this shape with random float32 weights, on the GPU if there is one."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda" if CUDA else "cpu"):
        return Qwen2ForCausalLM(Qwen2Config(**setting.shape))


def tests(setting: Setting) -> dict[str, Any]:
    """Every test marked `gpu`; the log names those that were skipped, and why."""
    import pytest

    counts = {"passed": 0, "failed": 0, "skipped": 0}

    class Counter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                counts[report.outcome] += 1

    marked = re.compile(r"^(?:@|pytestmark = .*?)pytest\.mark\.gpu\b", re.MULTILINE)
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text(encoding="utf-8"))]
    # The set-up of tests/components imports Ratchet.
    ours = all(map(util.find_spec, ("msgspec", "pydantic")))
    chosen = [str(path) for path in files if ours or "components" not in path.parts]
    code = pytest.main(["-m", "gpu", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *chosen], plugins=[Counter()])
    more = {**counts, "files_left_out": len(files) - len(chosen)}
    return {"more": more, **({"status": "failed"} if code else {})}


def plain(setting: Setting) -> dict[str, Any]:
    """A loop of torch around transformers' model: AdamW and bfloat16 autocast, nothing of TRL's or Ratchet's."""
    model = make_model(setting).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=CUDA)
    for length in setting.lengths:
        try:
            seconds = _plain_steps(model, optimizer, length, setting)
            break
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
            torch.cuda.empty_cache()
    speed = setting.batch * length / seconds
    figures = {"tokens_per_second": speed, "mfu": mfu(model.config, length, speed), "peak_gib": peak_gib()}
    return {**figures, "more": {"length": length}}


def _plain_steps(model: Any, optimizer: Any, length: int, setting: Setting) -> float:
    """Return the median seconds of a step."""
    ids = torch.randint(setting.shape["vocab_size"], (setting.micro, length), device=model.device)

    def step() -> None:
        for _ in range(setting.batch // setting.micro):
            with torch.autocast(model.device.type, torch.bfloat16):
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            (loss * setting.micro / setting.batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return sorted(timed(step) for _ in range(setting.steps))[setting.steps // 2]


def base(setting: Setting) -> tuple[Path, Any]:
    """Return a checkpoint of random weights, made once, and its tokenizer, which is fitted on the words of a file."""
    from training_steps import WORDS

    from ratchet.components.training.scratch_model import fit_tokenizer

    folder = setting.folder / "base"
    tokenizer = fit_tokenizer([" ".join(WORDS)] * 2, 640)
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        make_model(setting).save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    return folder, tokenizer


def words(tokenizer: Any, count: int) -> str:
    """Return a text of `count` tokens: words that are one token with the space before them."""
    known = sorted(token[1:] for token in tokenizer.get_vocab() if re.fullmatch("Ġ[a-z]+", token))
    return "".join(f" {known[index % len(known)]}" for index in range(count))


def write_rows(setting: Setting, tokenizer: Any, method: str, length: int) -> Path:
    """Write rows of `length` tokens, for DPO on each side, and return their file."""

    def chat(size: int) -> list[dict[str, str]]:
        text = words(tokenizer, size // 2)
        return [{"role": "user", "content": text}, {"role": "assistant", "content": text}]

    frame = len(tokenizer(tokenizer.apply_chat_template(chat(0), tokenize=False)).input_ids)
    prompt, reply = chat(length - frame)
    row = {"messages": [prompt, reply], "episode_id": "e"}
    if method == "dpo":
        turned = " ".join(reversed(reply["content"].split(" ")[1:]))
        other = {"role": "assistant", "content": f" {turned}"}
        row = {"prompt": [prompt], "chosen": [reply], "rejected": [other], "episode_ids": ["a", "b"]}
    path = setting.folder / f"{method}-{length}.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 2 * setting.batch, encoding="utf-8")
    return path


def fitting_job(setting: Setting, values: Callable[[int], dict[str, Any]]) -> tuple[Any, int, float]:
    """Return the job of the longest rows that fit the card by `ratchet plan`, as many at a time as fit too; their length,
    and the GiB of its plan.
    """
    from ratchet.components.training.config.job_config import load_job
    from ratchet.components.training.config.overrides import merge_values
    from ratchet.components.training.memory_estimate import PROCESS_BYTES, estimate_memory, model_size
    from ratchet.components.training.model_loading import uses_bfloat16

    usual: dict[str, Any] = {
        "output": str(setting.folder / "out"),
        "model": {"base": str(base(setting)[0])},
        "optimization": {"batch_size": setting.batch, "steps": setting.steps},
        "checkpoints": {"save_every": 1_000_000},
    }
    memory = torch.cuda.mem_get_info()[1] if CUDA else 0
    for length, micro in itertools.product(setting.lengths, (setting.batch, setting.batch // 2, setting.micro)):
        usual["optimization"]["micro_batch"] = micro
        job = load_job(merge_values(usual, values(length)))
        half = uses_bfloat16(job.model.precision)
        estimate = estimate_memory(job, model_size(job.model), bfloat16=half, device_bytes=memory).total
        if not CUDA or estimate < SPARE * memory:
            break
    shutil.rmtree(job.output, ignore_errors=True)
    return job, length, (estimate + (0 if CUDA else PROCESS_BYTES)) / 2**30


def trained(setting: Setting, method: str, **changes: Any) -> dict[str, Any]:
    """A whole job on rows of equal length. MFU only where all weights are trained: the formula counts their gradients."""
    if not CUDA and (missing := LACKING_ON_CPU.keys() & changes.get("trl", {})):
        return {"status": "skipped", "reason": LACKING_ON_CPU[missing.pop()]}
    from training_steps import clocked
    from transformers import AutoConfig

    from ratchet.components.training import job

    folder, tokenizer = base(setting)

    def values(length: int) -> dict[str, Any]:
        data = {"train": str(write_rows(setting, tokenizer, method, length))}
        return {"method": method, "data": data, "format": {"max_length": length}, **changes}

    config, length, planned = fitting_job(setting, values)
    reports: list[Any] = []
    clock = clocked(lambda: reports.append(job.run(config)))
    (report,) = reports
    speed = report.tokens / report.steps / clock.median
    return {
        "tokens_per_second": speed,
        "mfu": None if config.model.lora else mfu(AutoConfig.from_pretrained(folder), length, speed),
        "peak_gib": peak_gib(),
        "planned_gib": planned,
        "more": {"length": length, "micro_batch": report.micro_batch, "loss": report.train_loss},
    }


def answering_player(settings: dict[str, Any]) -> Any:
    """Return the player of `grpo` and `async`: each of six calls is answered with a text of `tokens` tokens of `base`, which
    begins elsewhere in each episode, so that attempts share their prompt alone.
    """
    import training_tools
    from transformers import AutoTokenizer

    from ratchet.components.core import Action, TimeStep, ToolResult
    from ratchet.components.core.environment_registry import register

    text = words(AutoTokenizer.from_pretrained(settings["base"]), settings["tokens"]).split()
    numbers = itertools.count()

    class Answering(training_tools.Waiting):
        """Succeeds in every other episode."""

        def reset(self, **options: Any) -> TimeStep:
            """Begin."""
            self.number = next(numbers)
            return super().reset(**options)

        def step(self, action: Action) -> TimeStep:
            """Answer at once."""
            first = self.number % len(text)
            answer = " ".join([*text[first:], *text[:first]])
            return TimeStep(answer, info={"result": ToolResult(action["call_id"], answer)})

        def finish(self, reason: str) -> TimeStep:
            """Grade the episode."""
            success = self.number % 2 == 0
            outcome = {"success": success, "score": float(success), "reason": reason}
            return TimeStep("", float(success), True, info={"outcome": outcome})

    register("benchmark/waiting", Answering, domain="generic", turns=training_tools.CALLS + 1)
    return training_tools.WaitingPlayer()


def grpo(setting: Setting, **options: Any) -> dict[str, Any]:
    """A job of GRPO: 16 episodes a step, whose seven replies are sampled from the model and replaced by a tool call each.

    Tokens per second are those of the training phase: synchronous steps without their rollout, asynchronous ones without
    waiting for episodes and without the transfer of weights.
    """
    import training_tools
    from training_steps import WARM_UP, clocked
    from transformers import AutoConfig, LogitsProcessorList, Qwen2ForCausalLM

    from ratchet.components.training import job
    from ratchet.components.training.grpo import episode_rollout
    from ratchet.components.training.grpo.rollout_sample import trl_rollout

    folder, tokenizer = base(setting)
    call, generate = tokenizer.encode(training_tools.CALL), Qwen2ForCausalLM.generate

    def values(length: int) -> dict[str, Any]:
        # A reply and the frame of a tool result take less than 50 tokens of each turn.
        play = {"base": str(folder), "tokens": length // training_tools.CALLS - 50}
        sampling = {"max_new_tokens": 48, "max_episode_tokens": length}
        section = {"player": "gpu_rows:answering_player", "play": play, "sampling": sampling, **options}
        section |= {"reward": {"success": 1.0}}
        optimization = {"batch_size": training_tools.ROLLOUTS, "steps": max(4, setting.steps - 2)}
        return {"method": "grpo", "optimization": optimization, "grpo": section}

    def forced(model: Any, **arguments: Any) -> Any:
        only = training_tools.Forced(call, arguments["input_ids"].shape[1])
        arguments["logits_processor"] = LogitsProcessorList([only, *arguments.get("logits_processor", ())])
        return generate(model, **arguments)

    def counted(samples: Any) -> Any:
        counts.append(sum(len(item.tokens.prompt_ids) + len(item.tokens.completion_ids) for item in samples))
        return trl_rollout(samples)

    counts: list[int] = []
    config, _, planned = fitting_job(setting, values)
    with (
        mock.patch.object(Qwen2ForCausalLM, "generate", forced),
        mock.patch.object(episode_rollout, "trl_rollout", counted),
    ):
        clock = clocked(lambda: job.run(config))
    logs = clock.logs[WARM_UP : WARM_UP + len(clock.seconds)]
    middle = {name: statistics.median(log.get(name) or 0.0 for log in logs) for name in logs[-1]}
    whole = clock.median
    if options:
        seconds, tokens = (
            middle["perf/fwd_bwd_s"] + middle["perf/optimizer_s"],
            middle["batch/forwarded_tokens_per_step"],
        )
    else:
        seconds, tokens = whole - middle["rollout/seconds"], statistics.median(counts)
    length = round(tokens / training_tools.ROLLOUTS)
    more = {"length": length, "step_seconds": whole, "episodes_per_second": training_tools.ROLLOUTS / whole}
    shown = {"weight_seconds": "perf/weight_sync_s", "wait_seconds": "perf/rollout_wait_s"}
    return {
        "tokens_per_second": tokens / seconds,
        "mfu": mfu(AutoConfig.from_pretrained(folder), length, tokens / seconds),
        "peak_gib": peak_gib(),
        "planned_gib": planned,
        "more": more | {name: middle[key] for name, key in shown.items() if key in middle},
    }


def transfer(setting: Setting) -> dict[str, Any]:
    """Seconds and GB/s of all weights in bfloat16: copied on the card, to host memory, and through a file and back."""
    from safetensors.torch import load_file, save_file

    model = make_model(setting).to(torch.bfloat16)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    path, device = setting.folder / "weights.safetensors", str(model.device)
    copies = {
        "card": {name: torch.empty_like(value) for name, value in weights.items()},
        "host": {name: torch.empty_like(value, device="cpu", pin_memory=CUDA) for name, value in weights.items()},
    }

    def send(route: str) -> None:
        if route == "disk":
            save_file(weights, path)
            load_file(path, device=device)
        else:
            for name, value in weights.items():
                copies[route][name].copy_(value, non_blocking=True)

    size = sum(value.numel() * value.element_size() for value in weights.values()) / 1e9
    more = {"gigabytes": size}
    for route in (*copies, "disk"):
        seconds = min(timed(lambda route=route: send(route)) for _ in range(4))
        more |= {f"{route}_seconds": seconds, f"{route}_gb_per_second": size / seconds}
    return {"peak_gib": peak_gib(), "more": more}


def vllm(setting: Setting) -> dict[str, Any]:
    """Tokens that vLLM's server samples for 64 prompts at once, log-probabilities included, over HTTP."""
    from ratchet.components.models.endpoint import Endpoint
    from ratchet.components.models.model_server import ModelServer
    from ratchet.components.models.sampled_policy import SamplingParameters
    from ratchet.components.models.vllm_policy import VllmSampler

    named = os.environ.get("RATCHET_VLLM_PYTHON")
    if named is None and util.find_spec("vllm") is None:
        return {
            "status": "skipped",
            "reason": "no vllm here and RATCHET_VLLM_PYTHON is not set; see infra/vllm/make_env.sh",
        }
    folder, _ = base(setting)
    count, length = (64, 256) if setting.shape is QWEN else (4, 8)
    prompts = [[(number * 7 + place) % 500 + 5 for place in range(64)] for number in range(count)]
    arguments = ("--max-model-len", "1024")
    with ModelServer(folder, python=Path(named or sys.executable), arguments=arguments, start_seconds=150) as server:
        sampler = VllmSampler(Endpoint(base_url=server.base_url, model=server.served.name, concurrency=64), [0])
        sampling = SamplingParameters(1.0, 1.0, length)
        sampler.sample(prompts, range(count), sampling)
        samples: list[Any] = []
        seconds = timed(lambda: samples.extend(sampler.sample(prompts, range(count), sampling)))
        sampler.close()
    return {"tokens_per_second": sum(len(sample.ids) for sample in samples) / seconds}


def sft(**changes: Any) -> Callable[[Setting], dict[str, Any]]:
    """Return the row of SFT with other options."""
    return functools.partial(trained, method="sft", **changes)


ROWS: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "card": card,
    "tests": tests,
    "torch": plain,
    "sft": sft(),
    "dpo": functools.partial(trained, method="dpo"),
    "grpo": grpo,
    # The replies are not what the model would have said, so log-probabilities differ.
    "async": functools.partial(grpo, asynchronous={"drift_alarm": 1e9}),
    "transfer": transfer,
    "vllm": vllm,
    "sft_lora": sft(model={"lora": {"r": 16}}),
    "sft_liger": sft(trl={"use_liger_kernel": True}),
    "sft_8bit": sft(optimization={"optimizer": "adamw_8bit"}),
    "sft_4bit": sft(model={"lora": {"r": 16}, "quantize": "4bit"}),
    "sft_compile": sft(trl={"torch_compile": True}),
}


def main() -> None:
    """Measure the row that the arguments name: ROW FOLDER [--rehearse]."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    figures = ROWS[options.row](make_setting(options.folder, options.rehearse))
    (options.folder / f"{options.row}.json").write_text(json.dumps(figures), encoding="utf-8")
