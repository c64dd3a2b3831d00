"""Which model is asked: a version tells apart all that shapes a reply, and nothing else; mistakes are one line."""

import json
import sys

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.models.http_client import retry_after
from ratchet.components.models.policy_config import OpenAIConfig
from ratchet.components.models.policy_factory import check_policy, make_policy, policy_version
from ratchet.components.tasksets import load_taskset

BASE = {"base_url": "http://127.0.0.1:8000/v1", "model": "m"}


def version(**values):
    return OpenAIConfig.load({**BASE, **values}).version


@pytest.mark.parametrize(
    "values",
    [
        {"model": "other"},
        {"revision": "r1"},
        {"format": "json"},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_new_tokens": 5},
        {"extra_body": {"top_k": 5}},
        {"context_window": 100},
    ],
)
def test_what_shapes_a_reply_changes_the_version(values):
    assert version(**values) != version()


@pytest.mark.parametrize(
    "values",
    [
        {"base_url": "https://elsewhere.example/v1"},
        {"api_key_env": "KEY"},
        {"retries": 1},
        {"concurrency": 2},
        {"timeouts": {"read": 1}},
        {"price": {"prompt": 1, "completion": 2}},
        {"logprobs": True},
        {"server": "vllm"},
    ],
)
def test_where_and_how_patiently_it_is_asked_does_not(values):
    assert version(**values) == version()


def checkpoint(folder, weights=b"\0" * 8):
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + weights)
    (folder / "config.json").write_text("{}")
    return str(folder)


def test_other_weights_under_one_name_have_another_version_and_the_same_weights_under_another_name_do_not(tmp_path):
    first, second, copy = (
        checkpoint(tmp_path / name, data) for name, data in (("a", b"1" * 8), ("b", b"2" * 8), ("c", b"1" * 8))
    )
    assert version(checkpoint=first) != version(checkpoint=second)
    assert version(checkpoint=first, model="x") == version(checkpoint=copy, model="y") != version()


@pytest.mark.parametrize("name", ["foo@notaurl", "foo", "foo@127.0.0.1:8000/v1"])
def test_a_name_that_is_neither_a_file_nor_a_model_at_an_address_says_both_forms(name):
    with pytest.raises(ConfigurationError, match=r"neither openai:FILE\.yaml nor openai:MODEL@URL"):
        OpenAIConfig.named(name)


def test_a_policy_is_checked_before_it_is_played(tmp_path, monkeypatch):
    orders = load_taskset("orders")
    keyed = tmp_path / "agent.yaml"
    keyed.write_text("base_url: http://127.0.0.1:9/v1\nmodel: m\napi_key_env: AGENT_KEY\n")
    monkeypatch.delenv("AGENT_KEY", raising=False)
    for name, said in (
        (f"openai:{keyed}", "AGENT_KEY .* is not set"),
        (f"best-of-2:steps:openai:{keyed}", "AGENT_KEY .* is not set"),
        (f"openai:{tmp_path / 'nofile.yaml'}", r"nofile\.yaml cannot be read"),
        ("techer", "unknown policy 'techer'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            check_policy(name, orders)
    monkeypatch.setenv("AGENT_KEY", "k")
    check_policy(f"openai:{keyed}", orders)
    check_policy("teacher", orders)


def test_a_function_of_a_module_is_a_policy(tmp_path, monkeypatch):
    (tmp_path / "my_refusers.py").write_text("def refuse(request):\n    return 'No.'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    orders = load_taskset("orders")
    policy = make_policy("my_refusers:refuse", orders)
    assert policy.name == "refuse" and policy.version == policy_version("my_refusers:refuse", orders)
    with pytest.raises(ConfigurationError, match="module 'my_refusers' has no 'refus'"):
        make_policy("my_refusers:refus", orders)
    with pytest.raises(
        ConfigurationError, match="module 'my_refuser' of policy 'my_refuser:refuse' cannot be imported"
    ):
        make_policy("my_refuser:refuse", orders)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"modell": "m"}, "did you mean 'model'.*known keys: base_url, model, api_key_env"),
        ({"format": "yaml"}, "'format'"),
        ({"base_url": "127.0.0.1:8000"}, "not an http"),
        ({"base_url": "http://me:secret@host/v1"}, "without user, password"),
        ({"api_key_env": "sk-not-a-name"}, "name of an environment variable"),
        ({"revision": "r", "checkpoint": "c"}, "not both"),
        ({"timeouts": {"totl": 3}}, "did you mean 'total'"),
    ],
)
def test_a_wrong_configuration_is_one_line(values, said):
    with pytest.raises(ConfigurationError, match=said) as error:
        OpenAIConfig.load({**BASE, **values})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "values",
    [
        {"base_url": "http://me:secret@host/v1"},
        {"base_url": "http://me:secret@[host/v1"},
        {"base_url": "http://host:secret/v1"},
        {"base_url": "http://host\x01secret/v1"},
        {"api_key_env": "sk-secret"},
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(values):
    with pytest.raises(ConfigurationError) as error:
        OpenAIConfig.load({**BASE, **values})
    assert "secret" not in str(error.value)


def test_a_file_says_what_its_configuration_says(tmp_path):
    config = OpenAIConfig.load(
        {**BASE, "format": "react", "price": {"prompt": 1, "completion": 2}, "extra_body": {"a": [1]}}
    )
    (tmp_path / "m.yaml").write_text(config.as_yaml())
    assert OpenAIConfig.named(str(tmp_path / "m.yaml")) == config


def test_a_policy_is_named_by_its_file_or_by_model_and_address(tmp_path):
    taskset = load_taskset("repair")
    (tmp_path / "m.yaml").write_text("base_url: http://127.0.0.1:8000/v1\nmodel: org/m\n")
    short = "openai:org/m@http://127.0.0.1:8000/v1"
    assert policy_version(short, taskset) == policy_version(f"openai:{tmp_path / 'm.yaml'}", taskset)
    policy = make_policy(short, taskset, temperature=0.1, top_p=0.2, max_new_tokens=3)
    assert (policy.config.model, policy.lockstep, policy.version) == ("org/m", False, policy_version(short, taskset))
    assert policy.sampling == {"temperature": 0.1, "top_p": 0.2, "max_new_tokens": 3}
    policy.close()


@pytest.mark.parametrize("name", ["openai:", "openai:absent.yaml", "openai:m@ftp://x", "opnai:m@http://x"])
def test_a_wrong_name_is_one_line(name):
    with pytest.raises(ConfigurationError) as error:
        policy_version(name, load_taskset("repair"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("3", 3),
        ("0.5", 0.5),
        ("-4", 0),
        ("soon", 0),
        ("nan", 0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0),
    ],
)
def test_retry_after_is_a_number_or_a_date(value, seconds):
    assert retry_after(value, now=40.0) == seconds
