"""Options of a job that are passed on to TRL by its own argument names, as the job's section `trl` gives them."""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.core.library_options import check_options, declared_fields

CHANGEABLE = ("adam_beta2", "dataloader_num_workers", "dataloader_pin_memory")
"""Arguments for which Ratchet has another default than TRL, and no key: `trl` may change them."""
PREPARED = "rows are prepared before TRL sees them; see the section format"
DECIDED = {
    "output_dir": "set output",
    **dict.fromkeys(("seed", "data_seed"), "set seed"),
    **dict.fromkeys(("bf16", "fp16", "bf16_full_eval", "fp16_full_eval"), "set model.precision"),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpointing"), "set model.gradient_checkpointing"),
    "model_init_kwargs": "set the section model",
    "trust_remote_code": "set model.trust_remote_code",
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), "set optimization.micro_batch"),
    **dict.fromkeys(("gradient_accumulation_steps", "generation_batch_size"), "set optimization.batch_size"),
    "steps_per_generation": "set grpo.updates",
    "learning_rate": "set optimization.learning_rate",
    "lr_scheduler_type": "set optimization.schedule",
    **dict.fromkeys(("warmup_steps", "warmup_ratio"), "set optimization.warmup_steps"),
    "weight_decay": "set optimization.weight_decay",
    "max_grad_norm": "set optimization.max_grad_norm",
    "optim": "set optimization.optimizer",
    "max_steps": "set optimization.steps",
    "num_train_epochs": "set optimization.epochs",
    **dict.fromkeys(("eval_strategy", "eval_steps", "eval_on_start"), "set checkpoints.evaluate_every"),
    **dict.fromkeys(
        ("save_strategy", "save_steps", "save_total_limit", "save_only_model"), "set checkpoints.save_every"
    ),
    **dict.fromkeys(
        ("load_best_model_at_end", "metric_for_best_model", "greater_is_better"), "set checkpoints.best_by"
    ),
    "resume_from_checkpoint": "run the same job again",
    **dict.fromkeys(("deepspeed", "fsdp", "fsdp_config", "parallelism_config", "ddp_backend"), "set run.launch"),
    **dict.fromkeys(("max_length", "max_prompt_length", "truncation_mode"), "set format.max_length"),
    **dict.fromkeys(("packing", "packing_strategy", "eval_packing", "padding_free"), "set sft.packing"),
    **dict.fromkeys(("assistant_only_loss", "completion_only_loss"), "set format.agent_format"),
    **dict.fromkeys(
        ("dataset_kwargs", "dataset_num_proc", "dataset_text_field", "eos_token", "pad_token", "chat_template_path"),
        PREPARED,
    ),
    "label_smoothing_factor": "it has no effect on the losses of Ratchet's trainers",
    "label_smoothing": "set dpo.label_smoothing",
    "precompute_ref_log_probs": "set dpo.precompute",
    "beta": "set beta of the section of the method",
    "loss_type": "set loss of the section of the method",
    "num_generations": "set grpo.group_size",
    "max_completion_length": "set grpo.sampling.max_episode_tokens",
    "temperature": "set grpo.sampling.temperature",
    "top_p": "set grpo.sampling.top_p",
    "importance_sampling_level": "set grpo.importance",
    "scale_rewards": "set grpo.scale_rewards",
    "epsilon": "set grpo.clip",
    "epsilon_high": "set grpo.clip_high",
    "use_bias_correction_kl": "set grpo.unbiased_kl",
    "num_iterations": "set grpo.updates",
    **dict.fromkeys(("use_vllm", "vllm_mode"), "set grpo.sampling.sampler"),
    **dict.fromkeys(("vllm_server_base_url", "vllm_server_host", "vllm_server_port"), "set grpo.sampling.server"),
    "generation_kwargs": "set grpo.sampling",
    **dict.fromkeys(
        (
            "vllm_importance_sampling_correction",
            "vllm_importance_sampling_mode",
            "vllm_importance_sampling_clip_min",
            "vllm_importance_sampling_clip_max",
        ),
        "set grpo.correction",
    ),
    **dict.fromkeys(
        ("logging_steps", "logging_nan_inf_filter", "include_num_input_tokens_seen", "report_to", "disable_tqdm"),
        "the report and the metrics of a job rest on it",
    ),
    **dict.fromkeys(("use_cpu", "remove_unused_columns"), "Ratchet decides it by the machine and the rows"),
}
"""Arguments that Ratchet decides, with the key that sets each, or the reason."""


@cache
def argument_names(method: str) -> frozenset[str]:
    """Return the argument names of a method's trainer, from the sources of TRL and transformers; empty without them."""
    folders = {}
    for package in ("transformers", "trl"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return frozenset()
        folders[package] = Path(spec.origin).parent
    names = declared_fields(folders["transformers"] / "training_args.py", "TrainingArguments")
    if method == "prm":
        return frozenset(names)
    trainer = folders["trl"] / "trainer"
    own = declared_fields(trainer / f"{method}_config.py", f"{method.upper()}Config")
    return frozenset(names | own | declared_fields(trainer / "base_config.py", "_BaseConfig"))


def check_trl_options(method: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an option that Ratchet decides, or that a method's trainer does not know."""
    if options:
        check_options("trl", f"TRL's {method} trainer", options, DECIDED, argument_names(method))


def with_trl_options(options: Mapping[str, Any], decided: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a trainer's configuration: those that Ratchet has decided, and the job's options.
    Raises ConfigurationError for an option that is decided.
    """
    if clash := sorted(options.keys() & decided.keys() - {*CHANGEABLE}):
        raise ConfigurationError(f"trl.{clash[0]}: {DECIDED.get(clash[0], 'Ratchet sets it itself')}; remove it here")
    return {**decided, **options}
