"""The chart and the compose file: what Kubernetes' schemas take, and how collectors are fenced in by both."""

import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.collector.many_visitors import PLAN_TEXT

DEPLOY = Path(__file__).parents[2] / "deploy"
OLDEST, NEWEST = "1.25", "1.37"
Documents = dict[str, dict[str, Any]]


def helm(*words: str) -> str:
    """Run Helm; raise `ChartError` with what it says."""
    program = Path(sysconfig.get_path("scripts")) / "helm"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChartError(done.stdout + done.stderr)
    return done.stdout


def rendered(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return the documents of the chart with some values; its release is called shop."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", "shop", str(DEPLOY / "chart"), "--values", str(file))
    return [document for document in yaml.safe_load_all(text) if document]


class ChartError(Exception):
    """Helm says that a value is missing, or a template is wrong."""


@pytest.fixture
def chart(tmp_path: Path) -> Documents:
    return {document["kind"]: document for document in rendered({"plan": PLAN_TEXT}, tmp_path)}


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("more", [{}, {"replicas": 1, "trust": "10.0.0.0/8", "key": {"storageClass": "plain"}}])
def test_kubernetes_takes_every_document_of_the_chart(version: str, more: dict[str, Any], tmp_path: Path) -> None:
    documents = rendered({"plan": PLAN_TEXT} | more, tmp_path)
    kinds = {"ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Service"}
    assert {document["kind"] for document in documents} == kinds | ({"PodDisruptionBudget"} if not more else set())
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.slow
def test_a_mistake_in_a_document_is_found(chart: Documents) -> None:
    chart["Deployment"]["spec"]["replicsa"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(chart["Deployment"], NEWEST, strict=True)


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    assert "0 chart(s) failed" in helm("lint", str(DEPLOY / "chart"), "--strict", "--set", "plan=any")


def test_a_chart_without_a_plan_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ChartError, match=r"Give the plan: --set-file plan=kanab\.toml"):
        rendered({}, tmp_path)


def test_pods_run_as_a_number_on_a_root_that_is_read_only_with_secrets_as_files(chart: Documents) -> None:
    pod = chart["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["automountServiceAccountToken"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    settings = {one["name"]: one["value"] for one in container["env"]}
    assert settings["KANAB_TOKEN_FILE"].startswith("/secrets/")
    assert settings["KANAB_STORE_FILE"].startswith("/secrets/")
    assert settings["KANAB_KEY_FILE"].startswith("/key/")
    assert not {"KANAB_TOKEN", "KANAB_STORE", "KANAB_KEY"} & settings.keys()
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/key", "/tmp"}


def test_probes_restart_by_livez_and_turn_posts_away_only_where_none_are_taken(chart: Documents) -> None:
    (container,) = chart["Deployment"]["spec"]["template"]["spec"]["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz/posts"}
    assert chart["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_network_policy_opens_one_port_in_and_the_database_and_names_out(chart: Documents) -> None:
    policy = chart["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": "http", "protocol": "TCP"}]]
    assert all(who["namespaceSelector"]["matchLabels"] for rule in policy["ingress"] for who in rule["from"])
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[5432], [53, 53]]
    labels = chart["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == chart["Service"]["spec"]["selector"] == labels


@pytest.mark.slow
def test_with_notify_the_policy_opens_one_more_way_out_and_secrets_are_files(tmp_path: Path) -> None:
    slack = {"name": "KANAB_NOTIFY_SLACK_FILE", "value": "/secrets/slack"}
    values = {"plan": PLAN_TEXT, "notify": {"cidr": "192.0.2.0/24"}, "env": [slack]}
    chart = {document["kind"]: document for document in rendered(values, tmp_path)}
    (way,) = [rule for rule in chart["NetworkPolicy"]["spec"]["egress"] if rule["ports"][0]["port"] == 443]
    assert way["to"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    (container,) = chart["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["env"][-1] == slack
    for document in chart.values():
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_both_collectors_of_the_compose_file_can_notify_as_the_page_says(services: dict[str, Any]) -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "deployment.md").read_text()
    (snippet,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    more = yaml.safe_load(snippet)
    for name in ("one", "two"):
        added = more["services"][name]
        assert set(added["networks"]) <= {"inside", "outside"}
        assert "outside" in services[name]["networks"] + added["networks"]
        (secret,) = added["secrets"]
        assert added["environment"] == {"KANAB_NOTIFY_SLACK_FILE": f"/run/secrets/{secret}"}
        assert secret in more["secrets"]


def test_another_plan_starts_other_pods(chart: Documents, tmp_path: Path) -> None:
    others = {one["kind"]: one for one in rendered({"plan": PLAN_TEXT + "# changed\n"}, tmp_path)}
    assert chart["ConfigMap"]["data"]["kanab.toml"] == PLAN_TEXT
    before, after = (one["Deployment"]["spec"]["template"]["metadata"]["annotations"] for one in (chart, others))
    assert before["checksum/plan"] != after["checksum/plan"]


def test_every_service_has_limits_and_only_caddy_is_reached_from_outside(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "one", "two", "caddy"}
    for service in services.values():
        assert {"mem_limit", "cpus", "pids_limit", "restart"} <= service.keys()
        assert service["security_opt"] == ["no-new-privileges:true"]
    open_ports = [port for service in services.values() for port in service.get("ports", [])]
    assert open_ports == ["127.0.0.1:8000:8000", "80:80", "443:443"]
    assert services["caddy"]["environment"]["KANAB_COLLECTORS"] == "one:8000 two:8000"


def test_both_collectors_of_the_compose_file_are_fenced_in_and_get_secrets_as_files(services: dict[str, Any]) -> None:
    for name in ("one", "two"):
        collector = services[name]
        assert (collector["read_only"], collector["user"], collector["cap_drop"]) == (True, "10001:10001", ["ALL"])
        assert collector["mem_limit"] == collector["memswap_limit"]
        assert not {"KANAB_TOKEN", "KANAB_STORE", "KANAB_KEY"} & collector["environment"].keys()
        assert collector["environment"]["KANAB_TOKEN_FILE"] == "/run/secrets/token"
        assert collector["volumes"][0] == "key:/key"
