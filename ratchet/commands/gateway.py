"""Command that puts a model behind the APIs that agents speak: gateway."""

import contextlib
import gc
import signal
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core.home import credential, credential_path, home_folder
from ratchet.render.terminal import print_fields, print_json, print_note


def gateway(
    model: Annotated[str, Argument(help="A policy, as for `ratchet collect --policy`; or a checkpoint's folder.")],
    port: Annotated[int, Option(min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = 0,
    store: Annotated[Path | None, Option(help="Store of the episodes; default: .ratchet/gateway.")] = None,
    taskset: Annotated[str, Option(help="Taskset that a scripted policy plays.")] = "programs",
    temperature: Annotated[float, Option(min=0, help="Temperature of every reply.")] = 1.0,
    top_p: Annotated[float, Option(min=0, max=1, help="Nucleus of every reply.")] = 1.0,
    max_new_tokens: Annotated[
        int | None,
        Option(
            min=1,
            help="Longest reply; a request may ask for less. Default: 1024, at most half of a checkpoint's context.",
        ),
    ] = None,
    requests: Annotated[int, Option(min=1, help="Replies of a session.")] = 1000,
    tokens: Annotated[int | None, Option(min=1, help="Sampled tokens of a session.")] = None,
    seconds: Annotated[float | None, Option(help="Duration of a session.")] = None,
    idle: Annotated[float, Option(help="Seconds after which an idle session ends.")] = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Serve a model to agents over OpenAI Chat Completions, OpenAI Responses and Anthropic Messages, and record their sessions.

    Give an agent the printed address and key. `/s/NAME/v1` or the header X-Ratchet-Session names its session; POST
    /s/NAME/finish ends one, with `{"success": true}` if that is known. Records are redacted and go to a store (`ratchet store`),
    with token ids and log-probabilities as they were sampled. Example: `ratchet gateway champion --port 8100`
    """
    from ratchet.components.models.gateway.gateway_server import GatewayServer
    from ratchet.components.models.gateway.gateway_sessions import Gateway, SessionLimits, check_key
    from ratchet.components.models.gateway.policy_queue import PolicyQueue
    from ratchet.components.models.gateway.session_store import SessionStore
    from ratchet.components.models.policy_factory import default_reply_tokens, make_policy
    from ratchet.components.operations.manual_evaluation import resolve_policy
    from ratchet.components.tasksets import load_taskset

    name = f"transformers:{model}" if (Path(model) / "config.json").is_file() else resolve_policy(model)
    limits = SessionLimits.load({"requests": requests, "tokens": tokens, "seconds": seconds, "idle_seconds": idle})
    root, key = store or home_folder("gateway"), check_key(credential("gateway"))
    longest = max_new_tokens or default_reply_tokens(name)
    policy = make_policy(name, load_taskset(taskset), temperature=temperature, top_p=top_p, max_new_tokens=longest)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a supervisor's end records the open sessions too
    try:
        with SessionStore(root, [key], policy.tokenizer_hash, policy.template_hash) as sessions:

            def make() -> Gateway:
                kind = name.partition(":")[0]
                return Gateway(policy, kind, sessions.keep, key=key, limits=limits, queue=PolicyQueue(policy))

            gc.freeze()  # else a full collection, which walks all imported modules, holds every session for 50 ms
            with GatewayServer(make, port=port) as server:
                ready = {
                    "openai_base_url": f"{server.root}/v1",
                    "anthropic_base_url": server.root,
                    "model": policy.version,
                    "key_file": str(credential_path("gateway")),
                    "store": str(root),
                }
                print_json(ready) if as_json else print_fields(ready)
                print_note("ready; Ctrl-C ends it, with its sessions")
                with contextlib.suppress(
                    KeyboardInterrupt
                ):  # a second one, while the sessions are recorded, is an error
                    server.wait()
            print_note("stopped; the open sessions are recorded")
    finally:
        policy.close()
