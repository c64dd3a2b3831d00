"""The stack on Kubernetes: `kubectl kustomize` renders it, the published schemas accept it, and it is closed by default."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/kubernetes"
SCHEMA = json.loads((Path(__file__).parent / "schemas/kubernetes-1.37.json").read_text())
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
Resource = dict[str, Any]


def read(*names: str) -> list[Resource]:
    files = sorted(
        path for name in names for path in (FOLDER / name).glob("*.yaml") if path.name != "kustomization.yaml"
    )
    return [resource for path in files for resource in yaml.safe_load_all(path.read_text())]


RESOURCES = read("base", "overlays/example")


def pod_specs(resources: list[Resource]) -> Iterator[tuple[Resource, dict[str, Any]]]:
    for resource in resources:
        spec = resource.get("spec", {})
        if resource["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield resource, spec["template"]["spec"]


CONTAINERS = [
    pytest.param(resource, pod, container, id=container["name"])
    for resource, pod in pod_specs(RESOURCES)
    for container in pod.get("initContainers", []) + pod["containers"]
]
each_container = pytest.mark.parametrize(("resource", "pod", "container"), CONTAINERS)


def check(resource: Resource) -> None:
    """Raise jsonschema.ValidationError unless a resource is valid by the schema of its kind."""
    reference = SCHEMA["kinds"][f"{resource['apiVersion']} {resource['kind']}"]
    jsonschema.Draft202012Validator({"$ref": reference, "$defs": SCHEMA["$defs"]}).validate(resource)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_every_resource_is_valid_by_the_published_schema(resource: Resource) -> None:
    check(resource)


@pytest.mark.parametrize("damage", [{"replicas": "three"}, {"replica": 1}, {"template": []}])
def test_the_schema_refuses_wrong_types_and_unknown_keys(damage: dict[str, Any]) -> None:
    good = next(each for each in RESOURCES if each["kind"] == "Deployment")
    with pytest.raises(jsonschema.ValidationError):
        check(good | {"spec": good["spec"] | damage})


@pytest.fixture(scope="module")
def kubectl() -> tuple[int, int]:
    """The version of the `kubectl` of this machine."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: apt-get install kubernetes-client")
    command = ["kubectl", "version", "--client", "--output", "json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    version = json.loads(printed)["clientVersion"]
    return int(version["major"]), int(version["minor"].rstrip("+"))


def test_kubectl_renders_the_base(kubectl: tuple[int, int]) -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / "base")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for resource in rendered:
        check(resource)
    assert len(rendered) == len(read("base")) + 2


def test_kubectl_renders_the_overlay_with_the_secrets_of_the_script(kubectl: tuple[int, int], tmp_path: Path) -> None:
    if kubectl < (1, 21):
        pytest.skip("kubectl before 1.21 holds a kustomize that takes no folder as a resource")
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("secrets"))
    overlay = tmp_path / "kubernetes/overlays/example"
    subprocess.run(
        ["sh", str(ROOT / "infra/make_secrets.sh"), str(overlay / "secrets")], check=True, capture_output=True
    )
    done = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for resource in rendered:
        check(resource)
    names = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered}
    assert len(names) == len(rendered) == len(RESOURCES) + 8  # four secrets and four config maps are generated
    referred = {("Secret", name) for name in re.findall(r"secretKeyRef:\n\s+key: \S+\n\s+name: (\S+)", done.stdout)}
    referred |= {("Secret", name) for name in re.findall(r"secretName: (\S+)", done.stdout) if name != "pages-tls"}
    referred |= {
        ("ConfigMap", name)
        for name in re.findall(r"config[A-Za-z]*:\n(?:\s+defaultMode.*\n)?\s+name: (\S+)", done.stdout)
    }
    assert referred == {(kind, name) for kind, _, name in names if kind in ("Secret", "ConfigMap")}
    assert "image: registry.example/ratchet-worker:" in done.stdout


@each_container
def test_every_container_has_limits_and_requests(resource: Resource, pod: Resource, container: Resource) -> None:
    resources = container["resources"]
    assert {"cpu", "memory"} <= set(resources["limits"]) and {"cpu", "memory"} <= set(resources["requests"])


@each_container
def test_every_container_that_stays_has_probes(resource: Resource, pod: Resource, container: Resource) -> None:
    if resource["kind"] == "CronJob":  # ends by itself, or at its deadline
        assert resource["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0
    else:
        assert {"readinessProbe", "livenessProbe"} <= set(container)


@each_container
def test_containers_are_unprivileged_except_the_engine_in_its_virtual_machine(
    resource: Resource, pod: Resource, container: Resource
) -> None:
    context = pod.get("securityContext", {}) | container["securityContext"]
    if container["name"] == "engine":
        assert (
            pod["runtimeClassName"] == "ratchet-sandboxes" and resource["metadata"]["namespace"] == "ratchet-sandboxes"
        )
        return
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0 and not context.get("privileged")
    assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]} and context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize(
    ("resource", "pod"), [pytest.param(*each, id=each[0]["metadata"]["name"]) for each in pod_specs(RESOURCES)]
)
def test_no_pod_has_a_folder_a_namespace_or_an_account_of_the_cluster(resource: Resource, pod: Resource) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    assert [volume for volume in pod.get("volumes", []) if "hostPath" in volume] == []


@each_container
def test_every_image_is_that_of_the_compose_file(resource: Resource, pod: Resource, container: Resource) -> None:
    compose = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())["services"]
    images = {service["image"] for service in compose.values()}
    tag = DIGEST.sub("", container["image"]).rpartition(":")[2]
    assert container["image"] in images or container["name"] == "engine"
    assert re.search(r"\d+\.\d+", tag) and "latest" not in tag


@each_container
def test_secrets_are_referred_to_and_never_values(resource: Resource, pod: Resource, container: Resource) -> None:
    secret = re.compile(r"PASSWORD$|SECRET|TOKEN|AUTH_STRING|CONNECTION_URL|STORE_URI")
    given = [each["name"] for each in container.get("env", []) if secret.search(each["name"]) and "value" in each]
    assert given == [] and [each for each in RESOURCES if each["kind"] == "Secret"] == []


def policies(namespace: str) -> list[Resource]:
    return [
        each for each in RESOURCES if each["kind"] == "NetworkPolicy" and each["metadata"]["namespace"] == namespace
    ]


@pytest.mark.parametrize("namespace", [each["metadata"]["name"] for each in RESOURCES if each["kind"] == "Namespace"])
def test_every_namespace_denies_all_traffic_by_default(namespace: str) -> None:
    deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert [each for each in policies(namespace) if each["spec"] == deny]


def test_the_engine_reaches_nothing_and_is_reached_by_workers_alone() -> None:
    rules = [each["spec"] for each in policies("ratchet-sandboxes")]
    assert not any("egress" in rule for rule in rules)
    (rule,) = (rule for rule in rules if rule["podSelector"])
    ((peer,),) = ([ingress["from"] for ingress in rule["ingress"]],)
    assert peer[0]["podSelector"]["matchExpressions"][0]["values"] == ["worker", "trainer"]


def test_only_workers_leave_the_cluster_and_by_https_alone() -> None:
    outside = [
        (each["spec"]["podSelector"]["matchExpressions"][0]["values"], egress["ports"])
        for each in policies("ratchet")
        for egress in each["spec"].get("egress", [])
        if any("ipBlock" in peer for peer in egress["to"])
    ]
    assert outside == [(["worker", "trainer"], [{"protocol": "TCP", "port": 443}])]


def test_prometheus_is_shown_and_let_in_to_the_metrics_of_the_worker() -> None:
    (worker,) = (each for each in RESOURCES if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "worker")
    template = worker["spec"]["template"]
    (metrics,) = (each for each in template["spec"]["containers"] if each["name"] == "metrics")
    port = metrics["ports"][0]["containerPort"]
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}
    assert template["metadata"]["annotations"] == annotations
    assert metrics["volumeMounts"] == [{"name": "project", "mountPath": "/project", "readOnly": True}]
    (policy,) = (each["spec"] for each in policies("ratchet") if each["metadata"]["name"] == "prometheus")
    assert policy["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]


def test_no_service_is_published_by_the_cluster() -> None:
    services = [each for each in RESOURCES if each["kind"] == "Service"]
    assert services and all(each["spec"].get("type", "ClusterIP") == "ClusterIP" for each in services)
    assert all("tls" in each["spec"] for each in RESOURCES if each["kind"] == "Ingress")


def test_the_trainer_asks_for_a_gpu_and_sandboxes_for_a_virtual_machine() -> None:
    pods = {resource["metadata"]["name"]: pod for resource, pod in pod_specs(RESOURCES)}
    assert pods["trainer"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (runtime,) = (each for each in RESOURCES if each["kind"] == "RuntimeClass")
    assert pods["engine"]["runtimeClassName"] == runtime["metadata"]["name"] and runtime["handler"] == "kata"


def test_the_engines_proxy_passes_the_same_calls_as_in_compose() -> None:
    compose = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())["services"]["sandboxes"]["command"]
    (pod,) = (pod for resource, pod in pod_specs(RESOURCES) if resource["metadata"]["name"] == "engine")
    args = next(each["args"] for each in pod["containers"] if each["name"] == "proxy")
    rules = re.compile("-allow(GET|POST|PUT|DELETE|HEAD|bindmountfrom)=")
    assert [each for each in args if rules.match(each)] == [each for each in compose if rules.match(each)]


def test_the_documented_patch_removes_the_only_way_out_of_the_cluster() -> None:
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    (policy,) = [
        each for each in RESOURCES if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "workers"
    ]
    outwards = [
        f"/spec/egress/{number}" for number, rule in enumerate(policy["spec"]["egress"]) if "ipBlock" in str(rule)
    ]
    patch = yaml.safe_load(page.partition("```yaml\npatches:")[2].partition("```")[0])[0]["patch"]
    assert [operation["path"] for operation in json.loads(patch)] == outwards
    assert sum("ipBlock" in str(each) for each in RESOURCES) == 1
