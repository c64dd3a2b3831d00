"""The stack on one machine: valid, pinned, confined, and closed to everybody but the proxy."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
SCHEMA = json.loads((Path(__file__).parent / "schemas/compose-spec.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((INFRA / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = ("worker", "trainer")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|AUTH_STRING|CONNECTION_URL|STORE_URI|_KEY$")
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
each_service = pytest.mark.parametrize("name", SERVICES)


def secret_names(name: str) -> set[str]:
    """Names of the files below /run/secrets of a service."""
    return {
        each if isinstance(each, str) else each.get("target", each["source"])
        for each in SERVICES[name].get("secrets", [])
    }


def test_the_file_is_valid_by_the_schema_of_the_compose_specification() -> None:
    jsonschema.validate(COMPOSE, SCHEMA)


@pytest.mark.parametrize(
    "damage", [{"services": {"a": {"imagee": "b:1"}}}, {"volumes": ["a"]}, {"services": {"a": []}}]
)
def test_the_schema_refuses_what_is_no_compose_file(damage: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(damage, SCHEMA)


@each_service
def test_every_service_has_a_health_check_limits_and_a_restart_policy(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert {"cpus", "memory", "pids"} <= set(service["deploy"]["resources"]["limits"])
    assert service["restart"] == "unless-stopped"


@each_service
def test_every_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and not service.get("privileged")
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", [])) <= ({"NET_BIND_SERVICE"} if name == "proxy" else set())
    assert not {"pid", "ipc", "network_mode", "userns_mode", "devices"} & set(service)


@each_service
def test_every_image_has_a_version_and_none_is_the_latest(name: str) -> None:
    tag = DIGEST.sub("", SERVICES[name]["image"]).rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag) and "latest" not in tag


def test_servers_have_the_versions_that_the_clients_are_pinned_to() -> None:
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert f"prefect:{pins['prefect']}-" in SERVICES["prefect"]["image"]
    assert f"mlflow:v{pins['mlflow']}-full" in SERVICES["mlflow"]["image"]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert [SERVICES[name]["image"] for name in WORKERS] == [f"ratchet-{name}:{version[1]}" for name in WORKERS]


@each_service
def test_no_secret_is_an_environment_value(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    secrets = [
        key for key in environment if SECRET_NAME.search(key) and not key.endswith(("_FILE", "_KEY_ID", "_PATH"))
    ]
    assert secrets == []
    assert all("://" not in str(value) or "@" not in str(value) for value in environment.values())


def test_metrics_read_the_workers_home_and_can_change_nothing_of_it() -> None:
    service = SERVICES["metrics"]
    assert service["volumes"] == ["worker-project:/project:ro"] and secret_names("metrics") == set()
    assert service["user"] == SERVICES["worker"]["user"] and service["image"] == SERVICES["worker"]["image"]
    (job, *_) = yaml.safe_load((INFRA / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [service["ports"][0].rpartition(":")[0]]}]


def test_every_secret_is_a_file_that_the_script_makes_once(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    command = ["sh", str(INFRA / "make_secrets.sh"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    files = {path.name for path in folder.iterdir()}
    assert {Path(secret["file"]).name for secret in COMPOSE["secrets"].values()} == files
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    values = [path.read_text() for path in folder.iterdir() if path.name.endswith("password")]
    assert len(set(values)) == len(values) and min(len(value) for value in values) == 48
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2 and "exists already" in again.stderr
    assert {path.read_text() for path in folder.iterdir() if path.name.endswith("password")} == set(values)


def test_secrets_of_a_folder_become_variables_of_the_command_alone(tmp_path: Path) -> None:
    script = (INFRA / "worker/with_secrets.sh").read_text().replace("/run/secrets", str(tmp_path))
    (tmp_path / "A_TOKEN").write_text("a b\n$c")
    (tmp_path / "settings.ini").write_text("no variable")
    command = [
        "sh",
        "-c",
        script,
        "with_secrets",
        "python3",
        "-c",
        "import os, json; print(json.dumps(dict(os.environ)))",
    ]
    printed = subprocess.run(
        command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    ).stdout
    environment = json.loads(printed)
    assert environment["A_TOKEN"] == "a b\n$c" and "settings.ini" not in environment


def test_only_the_proxy_and_metrics_publish_a_port_and_on_loopback_by_default() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"proxy": ["${PROXY_ADDRESS:-127.0.0.1}:443:8443"], "metrics": ["127.0.0.1:9464:9464"]}


def test_only_the_proxy_and_workers_reach_outside() -> None:
    networks = COMPOSE["networks"]
    open_networks = {name for name, settings in networks.items() if not settings.get("internal")}
    assert open_networks == {"outside", "metrics"}
    assert networks["metrics"]["driver_opts"] == {"com.docker.network.bridge.enable_ip_masquerade": "false"}
    assert {name for name in SERVICES if "outside" in SERVICES[name]["networks"]} == {"proxy", *WORKERS}


def test_databases_and_engine_are_reached_only_by_those_who_use_them() -> None:
    def members(network: str) -> set[str]:
        return {name for name, service in SERVICES.items() if network in service["networks"]}

    assert members("databases") == {"postgres", "prefect", "mlflow"}
    assert members("sandboxes") == {"sandboxes", *WORKERS}
    assert SERVICES["postgres"]["networks"] == ["databases"] and SERVICES["sandboxes"]["networks"] == ["sandboxes"]


def test_no_worker_has_an_engines_socket() -> None:
    mounting = {name for name, service in SERVICES.items() if "docker.sock" in str(service.get("volumes", ""))}
    assert mounting == {"sandboxes"}
    for name in WORKERS:
        assert SERVICES[name]["environment"]["DOCKER_HOST"] == "tcp://sandboxes:2375"
        assert all(not each.startswith(("/", ".", "$")) for each in SERVICES[name]["volumes"])


def test_the_engine_is_one_that_the_user_names_and_never_the_hosts_by_default() -> None:
    (mount,) = SERVICES["sandboxes"]["volumes"]
    assert mount.startswith("${SANDBOX_SOCKET:?") and SERVICES["sandboxes"]["user"].startswith("${SANDBOX_USER:?")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1.47/version"),
        ("GET", "/version"),
        ("GET", "/v1.41/images/ratchet-sandbox:latest/json"),
        ("GET", "/v1.47/images/sha256:0123abcd/json"),
        ("GET", "/v1.47/events"),
        ("POST", "/v1.47/containers/create"),
        ("POST", "/v1.47/containers/0123abcdef/attach"),
        ("POST", "/v1.47/containers/0123abcdef/start"),
        ("DELETE", "/v1.47/containers/ratchet-0123-a.b"),
    ],
)
def test_the_engines_proxy_passes_what_ratchet_asks(method: str, path: str) -> None:
    assert any(re.fullmatch(rule, path) for rule in allowed(method))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1.47/containers/0123abcdef/exec"),
        ("POST", "/v1.47/exec/0123/start"),
        ("POST", "/v1.47/build"),
        ("POST", "/v1.47/images/create"),
        ("POST", "/v1.47/volumes/create"),
        ("POST", "/v1.47/networks/create"),
        ("PUT", "/v1.47/containers/0123abcdef/archive"),
        ("GET", "/v1.47/containers/0123abcdef/archive"),
        ("GET", "/v1.47/secrets"),
        ("DELETE", "/v1.47/images/ratchet-sandbox:latest"),
    ],
)
def test_the_engines_proxy_refuses_the_rest(method: str, path: str) -> None:
    assert not any(re.fullmatch(rule, path) for rule in allowed(method))


def allowed(method: str) -> list[str]:
    prefix = f"-allow{method}="
    return [each.removeprefix(prefix) for each in SERVICES["sandboxes"]["command"] if each.startswith(prefix)]


def test_the_engines_proxy_allows_no_bind_mount() -> None:
    assert "-allowbindmountfrom=/nonexistent" in SERVICES["sandboxes"]["command"]


def test_the_pages_ask_for_a_login_and_come_over_tls() -> None:
    text = (INFRA / "proxy/Caddyfile").read_text()
    sites = re.findall(r"^(\S+\.\{\$RATCHET_DOMAIN:localhost\}) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert len(sites) == 2 and "auto_https off" not in text and "http://" not in text
    for _, body in sites:
        assert body.index("import site") < body.index("basic_auth") < body.index("reverse_proxy")


def test_everything_that_is_mounted_is_there() -> None:
    files = [INFRA / config["file"] for config in COMPOSE["configs"].values()]
    builds = [
        INFRA / build["context"] / build["dockerfile"] for each in SERVICES.values() if (build := each.get("build"))
    ]
    assert [path for path in files + builds if not path.is_file()] == [] and builds
    assert {name for name in WORKERS if "PREFECT_API_AUTH_STRING" in secret_names(name)} == set(WORKERS)
    volumes = {each.partition(":")[0] for service in SERVICES.values() for each in service.get("volumes", [])}
    assert {name for name in volumes if not name.startswith("$")} == set(COMPOSE["volumes"])


def test_passwords_are_kept_out_of_git() -> None:
    for folder in ("infra/secrets", "infra/kubernetes/overlays/mine/secrets"):
        ignored = subprocess.run(["git", "check-ignore", "-q", f"{folder}/postgres_password"], cwd=ROOT, check=False)
        assert ignored.returncode == 0
