"""MLflow's python_function flavour of a checkpoint: `mlflow.pyfunc.load_model("models:/agent@champion").predict(…)`.

A checkpoint gets two further files in MLflow's store, `MLmodel` and an input example. They belong to the store and not
to the checkpoint, whose hash does not cover them. Prediction is one turn of the policy without sampling noise, in this
process: it plays no task and runs no tool.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.components.core import ConfigurationError, PolicyRequest, ToolSpec
from ratchet.components.core.files import temporary_folder

from .checkpoint_stores import checkpoint_store
from .checkpoint_transfer import EXAMPLE_FILE, MODEL_FILE

if TYPE_CHECKING:
    from mlflow.models import Model
    from pandas import DataFrame

EXAMPLE = {"messages": [{"role": "user", "content": "add(a, b): return a plus b."}]}
"""A conversation of which `predict` returns the next turn."""
TOOLS_PARAM = "tools"
"""Parameter of `predict`: the tools as JSON, a list of function descriptions in OpenAI's format."""


def store_flavour(location: str, model_id: str) -> None:
    """Store the files of the flavour beside the checkpoint at `location`."""
    store = checkpoint_store(location)
    with temporary_folder("agent") as temporary:
        folder = Path(temporary)
        (folder / EXAMPLE_FILE).write_text(json.dumps(EXAMPLE))
        _description(model_id).save(str(folder / MODEL_FILE))
        for name in (EXAMPLE_FILE, MODEL_FILE):
            store.put(folder / name, name)


def _description(model_id: str) -> "Model":
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import AnyType, Array, Object, Property

    optional = [Property(name, DataType.string, required=False) for name in ("content", "name", "tool_call_id")]
    fields = [Property("role", DataType.string), *optional, Property("tool_calls", AnyType(), required=False)]
    signature = ModelSignature(
        Schema([ColSpec(Array(Object(fields)), "messages")]),
        Schema([ColSpec(DataType.string)]),
        ParamSchema([ParamSpec(TOOLS_PARAM, DataType.string, "[]"), ParamSpec("max_new_tokens", DataType.integer, 96)]),
    )
    example = {"artifact_path": EXAMPLE_FILE, "type": "json_object", "format": "json"}
    model = Model(model_id=model_id, signature=signature, saved_input_example_info=example)
    python = ".".join(map(str, sys.version_info[:3]))
    return model.add_flavor("python_function", loader_module=__name__, python_version=python)


class AgentModel:
    """A policy as MLflow calls it: conversations in, the text of the next turn out."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._policies: dict[int, Any] = {}

    def predict(self, data: "DataFrame", params: dict[str, Any] | None = None) -> list[str]:
        """Return the next turn of each row's conversation as the model writes it, tool calls included.

        `data`: a column `messages`, each a list of chat messages. Raises ConfigurationError for tools that are not
        OpenAI's list of functions.
        """
        values: dict[str, Any] = {"max_new_tokens": 96, TOOLS_PARAM: "[]"} | (params or {})
        tools = tuple(_read_tools(str(values[TOOLS_PARAM])))
        requests = [
            PolicyRequest(f"predict-{number}", "predict", 0, 0, [dict(message) for message in messages], tools)
            for number, messages in enumerate(data["messages"])
        ]
        return [reply.text for reply in self._policy(int(values["max_new_tokens"])).act(requests)]

    def _policy(self, max_new_tokens: int) -> Any:
        from ratchet.components.models.transformers_policy import TransformersPolicy

        if max_new_tokens not in self._policies:
            self._policies = {
                max_new_tokens: TransformersPolicy(self._checkpoint, temperature=0.0, max_new_tokens=max_new_tokens)
            }
        return self._policies[max_new_tokens]


def _read_tools(text: str) -> Iterable[ToolSpec]:
    try:
        functions = [tool["function"] for tool in json.loads(text)]
        return [ToolSpec(entry["name"], entry.get("description", ""), entry["parameters"]) for entry in functions]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"parameter '{TOOLS_PARAM}' is no list of functions ({error!r}); give JSON in the format of OpenAI's `tools`"
        ) from error


def _load_pyfunc(path: str) -> AgentModel:
    """Return the model in the folder `path`; called by MLflow."""
    return AgentModel(Path(path))
