"""A few conversations and a tokenizer fitted on them."""

import pytest

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": list(keys),
            },
        },
    }
    for name, keys in {"read_file": ["path"], "edit_file": ["path", "old", "new"], "submit": []}.items()
]


def call(name, **arguments):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "0", "type": "function", "function": function}]}


def conversation(observation="def add(a, b):\n    return a - b\n", thought=""):
    return [
        {"role": "user", "content": "add(a, b): return a plus b."},
        {**call("read_file", path="main.py"), "content": thought},
        {"role": "tool", "content": observation},
        call("edit_file", path="main.py", old="return a - b", new="return a + b"),
        {"role": "tool", "content": "ok"},
        call("submit"),
    ]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkpoint with random weights that can play and be trained."""
    from small_model import make_checkpoint

    return make_checkpoint(tmp_path_factory.mktemp("base") / "ck")


@pytest.fixture(scope="session")
def tokenizer():
    pytest.importorskip("transformers")
    from ratchet.components.training.scratch_model import conversation_text, fit_tokenizer

    texts = [conversation_text(conversation(f"def f{i}(a, b):\n    return a * {i}\n"), TOOLS) for i in range(30)]
    return fit_tokenizer(texts, 400)


@pytest.fixture
def tools():
    return TOOLS


@pytest.fixture
def chat():
    return conversation


@pytest.fixture
def sft(tmp_path, chat, tools):
    """Makes small supervised jobs on the same twelve rows; each in a folder of its own name."""
    import json

    from training_jobs import make_job

    path = tmp_path / "train.jsonl"
    rows = [
        {"messages": chat(f"def f{number}(a, b):\n    return a - b\n"), "episode_id": f"ep-{number}", "tools": tools}
        for number in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = {"hidden": 32, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate": 64, "vocabulary": 360}
    usual = {"train": path, "shape": shape, "batch_size": 4, "warmup_steps": 2, "threads": 1, "precision": "float32"}

    def make(name="out", **changes):
        return make_job("sft", **{"output": tmp_path / name, **usual, **changes})

    return make
