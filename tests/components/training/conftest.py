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


@pytest.fixture(scope="session")
def tokenizer():
    pytest.importorskip("transformers")
    from components.training.tokenizer import conversation_text, fit_tokenizer

    texts = [conversation_text(conversation(f"def f{i}(a, b):\n    return a * {i}\n"), TOOLS) for i in range(30)]
    return fit_tokenizer(texts, 400)


@pytest.fixture
def tools():
    return TOOLS


@pytest.fixture
def chat():
    return conversation
