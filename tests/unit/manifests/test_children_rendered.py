"""What a service is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_operator.decide.manifests import Owner, children
from tidegate_operator.decide.pod_template import next_template
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import read_spec

EXAMPLES = Path(__file__).resolve().parents[3] / "crds/examples"
OWNER = Owner(ServiceKey("team-a", "web"), "uid-1")
Json = dict[str, Any]


def rendered(replicas: int = 2, **spec: Any) -> dict[str, Json]:
    read = read_spec({"model": {"source": "pvc://models/m.gguf"}} | spec)
    template = next_template("web", read, "engine:1", None)
    made = children(OWNER, read, template, replicas=replicas, operator_namespace="tidegate-system")
    return {child["kind"]: child for child in made}


def pod(**spec: Any) -> Json:
    body: Json = rendered(**spec)["Deployment"]["spec"]["template"]["spec"]
    return body


def container(**spec: Any) -> Json:
    (only,) = pod(**spec)["containers"]
    engine: Json = only
    return engine


@pytest.mark.parametrize("kind", ["ServiceAccount", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment"])
def test_every_child_carries_the_services_name_and_goes_with_it(kind: str) -> None:
    metadata = rendered()[kind]["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("team-a", "web")
    assert metadata["labels"]["tidegate.dev/service"] == "web"
    (owner,) = metadata["ownerReferences"]
    assert owner["uid"] == "uid-1"
    assert owner["controller"] is True
    assert owner["blockOwnerDeletion"] is True


@pytest.mark.parametrize("replicas", [0, 1, 7])
def test_replicas_are_always_sent(replicas: int) -> None:
    assert rendered(replicas)["Deployment"]["spec"]["replicas"] == replicas


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_runs_restricted(example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text()):
        if document["kind"] != "InferenceService":
            continue
        body = pod(**document["spec"])
        (engine,) = body["containers"]
        assert body["automountServiceAccountToken"] is False
        assert body["securityContext"]["runAsNonRoot"] is True
        assert body["securityContext"]["runAsUser"] == 65532
        assert body["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert engine["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert engine["securityContext"]["allowPrivilegeEscalation"] is False
        assert engine["securityContext"]["readOnlyRootFilesystem"] is True
        assert not {"hostNetwork", "hostPID", "hostIPC"} & body.keys()
        assert not any("hostPath" in volume for volume in body["volumes"])


@pytest.mark.parametrize(
    ("source", "claims"),
    [
        pytest.param("pvc://models/d.gguf", {"models": "models"}, id="beside the model"),
        pytest.param("pvc://other/d.gguf", {"models": "models", "draft-models": "other"}, id="on a claim of its own"),
        pytest.param("file:///opt/d.gguf", {"models": "models"}, id="in the image"),
    ],
)
def test_a_draft_model_is_mounted_where_its_flag_says(source: str, claims: dict[str, str]) -> None:
    spec = {"engine": {"speculative": {"method": "draft", "draftSource": source}}}
    found = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in pod(**spec)["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert found == {name: {"claimName": claim, "readOnly": True} for name, claim in claims.items()}
    mounts = {mount["name"]: mount for mount in container(**spec)["volumeMounts"]}
    assert all(mounts[name]["readOnly"] for name in claims)
    args = container(**spec)["args"]
    path = args[args.index("--draft-model") + 1]
    assert path.startswith(("/opt/", *(mounts[name]["mountPath"] for name in claims)))


def test_the_model_is_read_only_and_everything_written_has_room() -> None:
    mounts = {mount["mountPath"]: mount for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert mounts["/models"]["readOnly"] is True
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert volumes[mounts["/tmp"]["name"]] == {"name": "tmp", "emptyDir": {}}
    assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"] == {"medium": "Memory"}
    variables = {variable["name"]: variable["value"] for variable in container()["env"]}
    assert all(variables[name].startswith("/tmp") for name in ("HOME", "TRITON_CACHE_DIR"))


def test_a_model_in_the_image_needs_no_claim() -> None:
    assert {volume["name"] for volume in pod(model={"source": "file:///opt/m"})["volumes"]} == {"tmp", "shm"}


@pytest.mark.parametrize(("timeout", "grace"), [("0s", 30), ("5m", 330), ("1h", 3630)])
def test_a_pod_gets_its_drain_and_half_a_minute_to_end(timeout: str, grace: int) -> None:
    assert pod(drain={"timeout": timeout})["terminationGracePeriodSeconds"] == grace


def test_a_pod_that_is_to_end_answers_while_endpoints_still_name_it() -> None:
    assert container()["lifecycle"]["preStop"] == {"sleep": {"seconds": 5}}


@pytest.mark.parametrize(("deadline", "seconds"), [("10m", 600), ("90s", 90), ("2h", 7200)])
def test_a_model_has_as_long_to_load_as_its_rollout(deadline: str, seconds: int) -> None:
    made = rendered(rollout={"progressDeadline": deadline})["Deployment"]["spec"]
    startup = made["template"]["spec"]["containers"][0]["startupProbe"]
    assert made["progressDeadlineSeconds"] == seconds
    assert startup["periodSeconds"] * startup["failureThreshold"] == seconds


def test_health_is_asked_on_the_admin_port_which_the_service_has_not() -> None:
    engine = container()
    ports = {port["name"]: port["containerPort"] for port in engine["ports"]}
    assert ports == {"http": 8000, "admin": 9000}
    asked = {probe: engine[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {get["port"] for get in asked.values()} == {"admin"}
    assert asked["livenessProbe"]["path"] == "/health"
    assert asked["readinessProbe"]["path"] == "/ready"
    (port,) = rendered()["Service"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, "http")


def test_the_admin_port_is_for_the_operator_and_for_namespaces_that_say_so() -> None:
    anyone, some = rendered()["NetworkPolicy"]["spec"]["ingress"]
    assert "from" not in anyone
    assert [port["port"] for port in anyone["ports"]] == [8000]
    assert [port["port"] for port in some["ports"]] == [9000]
    assert [peer["namespaceSelector"]["matchLabels"] for peer in some["from"]] == [
        {"kubernetes.io/metadata.name": "tidegate-system"},
        {"tidegate.dev/admin-access": "true"},
    ]


def test_a_node_can_always_be_emptied() -> None:
    budget = rendered(1)["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_all_select_the_same_pods() -> None:
    made = rendered(pod={"labels": {"team": "a"}})
    pods = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert pods["team"] == "a"
    selectors = [
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert selectors == [{"tidegate.dev/service": "web"}] * 4
    assert selectors[0].items() <= pods.items()


def test_what_the_user_adds_to_pods_is_there() -> None:
    body = pod(
        pod={
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"anything": 1}},
            "topologySpread": [{"topologyKey": "zone"}],
            "priorityClassName": "high",
            "volumes": [
                {"name": "more", "mountPath": "/more", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "keys", "mountPath": "/keys", "secret": {"name": "s"}},
                {"name": "room", "mountPath": "/room", "readOnly": False, "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "files", "mountPath": "/files", "image": {"reference": "files:1"}},
            ],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "secretKeyRef": {"name": "s", "key": "k"}},
            ],
        }
    )
    assert body["nodeSelector"] == {"disk": "fast"}
    assert body["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert body["affinity"] == {"nodeAffinity": {"anything": 1}}
    assert body["priorityClassName"] == "high"
    (spread,) = body["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {"tidegate.dev/service": "web"}}
    assert body["volumes"][3:] == [
        {"name": "more", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "keys", "secret": {"secretName": "s"}},
        {"name": "room", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "files", "image": {"reference": "files:1", "pullPolicy": "IfNotPresent"}},
    ]
    mounts = body["containers"][0]["volumeMounts"][3:]
    assert [mount.get("readOnly", False) for mount in mounts] == [True, True, False, True]
    assert body["containers"][0]["env"][2:] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]


def test_what_nobody_asked_for_is_not_owned() -> None:
    body = pod()
    assert (
        not {"nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"} & body.keys()
    )
    assert "resources" not in body["containers"][0]
