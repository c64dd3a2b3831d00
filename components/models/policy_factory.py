"""Create a policy from its name.

Names: `teacher`, `rewriter`, `clumsy`, `random-edit`; `transformers:<checkpoint folder>`; `vllm:<checkpoint folder>`,
optionally with `@<base_url>` of a running server, or `vllm:<YAML file>`; `openai:<YAML file>` or
`openai:<model>@<base_url>`; `<module>:<function>` of an agent function. A checkpoint may be a LoRA adapter.
`best-of-<n>:<folder of a step model>:<name>` takes the best of n replies of any of them that samples.

A package adds policies through the entry-point group `ratchet.policies`. Each entry has the name of a kind, and is a
function `make(argument, *, temperature, top_p, max_new_tokens)` that returns a Policy or an agent function; `argument`
is the text after the colon of `<kind>:<argument>`. The version must be known without loading a model.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError, Policy
from ratchet.components.core.environment_registry import import_own_module, load_plugins
from ratchet.components.tasksets import Taskset

from .best_of_policy import BestOfName
from .checkpoint_folders import checkpoint_version, context_length
from .policy_config import OpenAIConfig, VllmConfig
from .vllm_options import server_gpus

POLICY_GROUP = "ratchet.policies"
SCRIPTED = {"teacher": "Teacher", "rewriter": "Rewriter", "clumsy": "Clumsy", "random-edit": "RandomEdit"}


def make_policy(
    name: str,
    taskset: Taskset,
    *,
    temperature: float = 0.8,
    top_p: float = 1.0,
    max_new_tokens: int = 96,
    threads: int | None = None,
) -> Policy:
    """Return the named policy; `vllm:` without an address starts a server. `close` the policy after use.

    Scripted policies play only the tasks of `taskset` and ignore the sampling parameters. `threads`: CPU threads of a
    `transformers` model (None: torch's default). Raises ConfigurationError for an unknown name, DataError for a broken
    checkpoint.

    >>> ratchet.make_policy("teacher", ratchet.load_taskset("orders")).name
    'teacher'
    """
    if best_of := BestOfName.parse(name):
        _check_sampled(best_of.policy)
        inner = make_policy(
            best_of.policy,
            taskset,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            threads=threads,
        )
        return best_of.wrap(inner, taskset.name)
    if name in SCRIPTED:
        from . import scripted_policies

        policy: Policy = getattr(scripted_policies, SCRIPTED[name])(taskset)
        return policy
    kind, _, source = name.partition(":")
    sampling: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_new_tokens": max_new_tokens}
    if kind == "transformers" and source:
        from .transformers_policy import TransformersPolicy

        return TransformersPolicy(Path(source), threads=threads, **sampling)
    if kind == "vllm" and source:
        from .vllm_policy import VllmPolicy

        return VllmPolicy(VllmConfig.named(source), **sampling)
    if kind == "openai" and source:
        from .openai_policy import OpenAIPolicy

        return OpenAIPolicy(OpenAIConfig.named(source), **sampling)
    if kind in _plugin_kinds():
        from .callable_policy import as_policy

        return as_policy(_plugin_policies[kind](source, **sampling))
    if kind.replace(".", "").isidentifier() and source.isidentifier():
        from .callable_policy import as_policy

        if (agent := getattr(import_own_module(kind, f"policy '{name}'"), source, None)) is None:
            raise ConfigurationError(f"module '{kind}' has no '{source}'; give module:function of an agent function")
        return as_policy(agent)
    raise ConfigurationError(
        f"unknown policy '{name}'; use {', '.join(SCRIPTED)}, transformers:<checkpoint folder>, "
        f"vllm:<checkpoint folder>, openai:<YAML file>, openai:<model>@<base_url>, "
        f"<module>:<function> or best-of-<n>:<step model>:<policy>"
        f"{''.join(f', {name}:…' for name in _plugin_kinds())}"
    )


_plugin_policies: dict[str, Callable[..., Any]] = {}


def _register_policy(name: str, factory: Callable[..., Any]) -> None:
    if name in SCRIPTED or name in ("transformers", "vllm", "openai", "champion") or not callable(factory):
        raise ConfigurationError(f"a policy '{name}' exists already, or its entry is no function; rename or correct it")
    _plugin_policies[name] = factory


def _plugin_kinds() -> list[str]:
    load_plugins(POLICY_GROUP, _register_policy)
    return list(_plugin_policies)


def list_policies() -> list[str]:
    """Return the names of scripted policies, then the kinds of all others.

    >>> ratchet.list_policies()[0]
    'teacher'
    """
    return [*SCRIPTED, "transformers", "vllm", "openai", *_plugin_kinds()]


def _check_sampled(name: str) -> None:
    if name in SCRIPTED:
        raise ConfigurationError(f"policy '{name}' is a script: all of its replies are the same; take one that samples")


def policy_version(name: str, taskset: Taskset) -> str:
    """Return the version of the named policy without loading a model. `taskset` matters for scripted policies, and for
    best-of-n, whose step model must know it.
    """
    if best_of := BestOfName.parse(name):
        _check_sampled(best_of.policy)
        return best_of.version(taskset.name, policy_version(best_of.policy, taskset))
    kind, _, source = name.partition(":")
    if kind in ("transformers", "vllm") and source:
        return checkpoint_version(Path(source) if kind == "transformers" else VllmConfig.named(source).checkpoint)
    if kind == "openai" and source:
        return OpenAIConfig.named(source).version
    return make_policy(name, taskset).version


def check_policy(name: str, taskset: Taskset) -> None:
    """Raise ConfigurationError for an unknown name, a missing file or a key variable that is not set, before anything is
    loaded or played; DataError for a broken checkpoint.
    """
    if best_of := BestOfName.parse(name):
        check_policy(best_of.policy, taskset)
    policy_version(name, taskset)
    kind, _, source = name.partition(":")
    if kind == "openai":
        OpenAIConfig.named(source).key()
    elif kind == "vllm" and (config := VllmConfig.named(source)).base_url:
        config.endpoint(config.base_url, "").key()


def checkpoint_folders(name: str) -> list[str]:
    """Return the folders that the named policy loads: its checkpoint, and the step model of best-of-n."""
    if best_of := BestOfName.parse(name):
        return [best_of.step_model, *checkpoint_folders(best_of.policy)]
    kind, _, source = name.partition(":")
    if kind == "transformers":
        return [source]
    return [str(VllmConfig.named(source).checkpoint)] if kind == "vllm" else []


def default_reply_tokens(name: str) -> int:
    """Return the longest reply of the named policy where nobody sets one: 1,024 tokens, at most half of the context of
    the checkpoint that it loads.
    """
    contexts = [context_length(Path(folder)) for folder in checkpoint_folders(name)[-1:]]
    return min([1024, *(context // 2 for context in contexts if context)])


def started_server_gpus(name: str) -> int:
    """Return the number of GPUs of the model server that the named policy starts on this machine; 0 if it starts none."""
    if best_of := BestOfName.parse(name):
        return started_server_gpus(best_of.policy)
    kind, _, source = name.partition(":")
    if kind != "vllm" or not source or (config := VllmConfig.named(source)).base_url is not None:
        return 0
    return server_gpus(config.options)


def plays_in_lockstep(name: str) -> bool:
    """Return whether the named policy answers the requests of many episodes in one call (`Policy.lockstep`), without
    loading a model.
    """
    best_of = BestOfName.parse(name)
    return (best_of.policy if best_of else name).partition(":")[0] == "transformers"
