"""What the API server refuses, and in which words; and that every example passes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission import SOURCE, bad, refusal, scaling
from real_cluster import Json, RealCluster
from tidegate_testbed.programs import Binaries

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "crds/examples").glob("*.yaml"))
DRAFT = {"method": "draft", "draftSource": "pvc://others/d.gguf"}
NO_DURATION = "is no duration over zero; write one like 500ms, 2s or 5m"


def pod_volume(**fields: Any) -> Json:
    return {"volumes": [{"name": "v", "mountPath": "/v", "configMap": {"name": "c"}} | fields]}


NOT_YET = [
    bad(
        "a model of the hub",
        "spec.model.source: Invalid value: 'hf://org/name@main' is not supported yet, since the engine does not "
        "download models; put "
        "the model on a claim and write pvc://CLAIM/PATH",
        model={"source": "hf://org/name@main"},
    ),
    bad(
        "a revision",
        "spec.model.revision: Invalid value: 'main' is not supported yet, since the engine does not download models; "
        "leave it out",
        model=SOURCE | {"revision": "main"},
    ),
    bad(
        "a token",
        "spec.model.tokenSecretRef: Invalid value: 'hub' is not supported yet, since the engine does not download "
        "models; "
        "leave it out",
        model=SOURCE | {"tokenSecretRef": {"name": "hub"}},
    ),
    bad(
        "no replica",
        "spec.scaling.minReplicas: Invalid value: 0 is not supported yet, since nothing would hold requests while "
        "there is no "
        "replica; use 1 or more",
        scaling=scaling(minReplicas=0),
    ),
    bad(
        "scaling to zero",
        "spec.scaling.scaleToZeroAfter: Invalid value: '10m' is not supported yet, since nothing would hold requests "
        "while there is "
        "no replica; leave it out",
        scaling=scaling(scaleToZeroAfter="10m"),
    ),
    bad(
        "rolling back by itself",
        "spec.rollout.autoRollback: Invalid value: true is not supported yet; leave it out",
        rollout={"autoRollback": True},
    ),
    bad(
        "API keys",
        "spec.auth: Invalid value: 'keys' is not supported yet, and nobody would be asked for a key; leave it out",
        auth={"apiKeysSecretRef": {"name": "keys"}},
    ),
]

WRONG = [
    bad(
        "a source that is a plain path",
        "spec.model.source: Invalid value: \"/models/m.gguf\": '/models/m.gguf' says not where the model is; write "
        "pvc://CLAIM/PATH or file:///PATH",
        model={"source": "/models/m.gguf"},
    ),
    bad("a claim without a path", "'pvc://models' says not where the model is", model={"source": "pvc://models"}),
    bad("two slashes for a file", "'file://m.gguf' says not where the model is", model={"source": "file://m.gguf"}),
    bad(
        "a path out of its folder",
        "'pvc://models/../etc' leads out of its folder by '..'; write the path without it",
        model={"source": "pvc://models/../etc"},
    ),
    bad(
        "a served name with a space",
        "'my model' is no name for a model; use letters, digits and . _ : / @ -, starting with a letter or digit",
        model=SOURCE | {"servedName": "my model"},
    ),
    bad(
        "replicas beside scaling",
        "spec.replicas: Invalid value: 2 cannot stand beside spec.scaling, which chooses the number; leave out one of "
        "the two, or set "
        "scaling.mode to advisory or external",
        replicas=2,
        scaling=scaling(),
    ),
    bad(
        "an external autoscaler without replicas",
        "spec.replicas: Required value: scaling.mode external needs it, since an autoscaler reads and writes it "
        "through "
        "the scale subresource; set it to the number to start with",
        scaling={"mode": "external"},
    ),
    bad(
        "bounds for an external autoscaler",
        "spec.scaling: Invalid value: in mode external the number and its bounds are the autoscaler's; leave out "
        "minReplicas, "
        "maxReplicas and behavior, and set them there",
        replicas=1,
        scaling={"mode": "external", "maxReplicas": 4},
    ),
    bad(
        "scaling without a maximum",
        "spec.scaling.maxReplicas: Required value: set the most replicas that may run",
        scaling={},
    ),
    bad(
        "a minimum over the maximum",
        "spec.scaling.minReplicas: Invalid value: 4 is more than maxReplicas 3; lower the one or raise the other",
        scaling=scaling(minReplicas=4),
    ),
    bad(
        "a target without a unit",
        f"spec.scaling.targets.ttft.p99: Invalid value: \"2\": '2' {NO_DURATION}",
        scaling=scaling(targets={"ttft": {"p99": "2"}}),
    ),
    bad("a target of zero", f"'0.0s' {NO_DURATION}", scaling=scaling(targets={"tpot": {"p99": "0.0s"}})),
    bad(
        "a queue of nothing",
        "spec.scaling.targets.queueDepth: Invalid value: 0: spec.scaling.targets.queueDepth in body should be greater "
        "than or equal to 1",
        scaling=scaling(targets={"queueDepth": 0}),
    ),
    bad(
        "another number of GPUs than ranks",
        "spec.engine.tensorParallel: Invalid value: 2 is not the 4 of spec.resources.limits['nvidia.com/gpu'], and "
        "each rank needs a "
        "GPU of its own; make them equal",
        engine={"tensorParallel": 2},
        resources={"limits": {"nvidia.com/gpu": 4}},
    ),
    bad(
        "more asked for than allowed",
        "spec.resources: Invalid value: more is asked for than spec.resources.limits allows; lower the request or "
        "raise the "
        "limit of memory",
        resources={"requests": {"cpu": 1, "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}},
    ),
    bad(
        "memory that is no quantity",
        "'2 GB' is no quantity; write one like 2, 500m, 512Mi or 4Gi",
        resources={"limits": {"memory": "2 GB"}},
    ),
    bad(
        "a cache of half a byte",
        "'0.5' is no amount of memory; write auto, or a whole number with a unit like 512Mi",
        engine={"kvCacheMemory": "0.5"},
    ),
    bad(
        "a flag that a field sets",
        "'--port=80' is set by Tidegate from a field of spec.model, spec.engine or spec.drain; use that field",
        engine={"extraArgs": ["--port=80"]},
    ),
    bad(
        "a dtype nobody has heard of",
        'spec.engine.dtype: Unsupported value: "float8": supported values: "auto", "float32", "float16", "bfloat16"',
        engine={"dtype": "float8"},
    ),
    bad(
        "a rollout that cannot move",
        "spec.rollout: Invalid value: maxSurge and maxUnavailable are both 0, so that no pod could ever be replaced; "
        "set one of them "
        "to 1",
        rollout={"maxSurge": 0},
    ),
    bad(
        "a surge of a hundred and ten percent",
        "'110%' is no number of pods; write one like 1, or a share like 25%",
        rollout={"maxSurge": "110%"},
    ),
    bad(
        "a drain of half a second",
        "'500ms' is no duration of whole seconds; write one like 30s, 10m or 1h",
        drain={"timeout": "500ms"},
    ),
    bad(
        "a label of Tidegate's",
        "tidegate.dev/…, pod-template-hash and app.kubernetes.io/name, instance and managed-by are set by Tidegate; "
        "use other labels",
        pod={"labels": {"tidegate.dev/service": "other"}},
    ),
    bad(
        "an annotation of Tidegate's",
        "tidegate.dev/… is set by Tidegate; use other annotations",
        pod={"annotations": {"tidegate.dev/template-hash": "0"}},
    ),
    bad(
        "a volume of two sources",
        "volume 'v' needs exactly one of persistentVolumeClaim, configMap, secret, emptyDir and image",
        pod=pod_volume(secret={"name": "s"}),
    ),
    bad(
        "scratch space that cannot be written",
        "volume 'v' starts empty, and nothing could be put into it; set readOnly to false",
        pod={"volumes": [{"name": "v", "mountPath": "/v", "emptyDir": {}}]},
    ),
    bad(
        "a draft model that is nowhere",
        "spec.engine.speculative.draftSource: Invalid value: is missing, and method draft guesses by that model; write "
        "pvc://CLAIM/PATH or file:///PATH",
        engine={"speculative": {"method": "draft"}},
    ),
    bad(
        "a draft model that nothing uses",
        "spec.engine.speculative.draftSource: Invalid value: 'file:///d' is not used by method ngram; leave it out, or "
        "set method to draft",
        engine={"speculative": {"method": "ngram", "draftSource": "file:///d"}},
    ),
    bad(
        "a draft model of the hub",
        "'hf://org/name' says not where the draft model is; write pvc://CLAIM/PATH or file:///PATH",
        engine={"speculative": {"method": "draft", "draftSource": "hf://org/name"}},
    ),
    bad(
        "more guesses than a step takes",
        "spec.engine.speculative.tokens: Invalid value: 17",
        engine={"speculative": {"method": "ngram", "tokens": 17}},
    ),
    bad("a volume of a name that is taken", "'tmp' cannot name a volume", pod=pod_volume(name="tmp")),
    bad(
        "a volume over Tidegate's own",
        "'/models/more' cannot be mounted at; write an absolute path outside of /models, /draft-models, /tmp, /dev, "
        "/proc, /sys and /opt/tidegate, which are Tidegate's own",
        pod=pod_volume(mountPath="/models/more"),
    ),
    bad(
        "a variable without a value",
        "variable 'A' needs exactly one of value, configMapKeyRef and secretKeyRef",
        pod={"env": [{"name": "A"}]},
    ),
    bad(
        "a variable of Tidegate's",
        "'HOME' cannot name a variable; use letters, digits and _, and not HOME or TRITON_CACHE_DIR, which are "
        "Tidegate's own",
        pod={"env": [{"name": "HOME", "value": "/"}]},
    ),
    bad("a variable twice", "Duplicate value", pod={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
    bad("a field that does not exist", 'unknown field "spec.engine.maxBatch"', engine={"maxBatch": 4}),
]


@pytest.mark.parametrize(("spec", "message"), NOT_YET)
def test_refused_until_it_is_built(kind: RealCluster, spec: Json, message: str) -> None:
    said = refusal(kind, spec)
    assert message in said
    assert said.count("Invalid value") == 1, f"one mistake, one line: {said}"


@pytest.mark.parametrize(("spec", "message"), WRONG)
def test_a_mistake_is_refused_in_words_that_name_the_value_and_the_remedy(
    kind: RealCluster, spec: Json, message: str
) -> None:
    assert message in refusal(kind, spec)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("1st", id="a name that starts with a digit"),
        pytest.param("a.b", id="a name with a dot"),
        pytest.param("a" * 64, id="a name of 64 characters"),
    ],
)
def test_a_name_that_no_service_could_have_is_refused(kind: RealCluster, name: str) -> None:
    said = refusal(kind, {"model": SOURCE}, name)
    assert (
        f"metadata.name: Invalid value: '{name}' cannot name a Service, and the service's address starts with it"
        in said
    )
    assert "use at most 63 lower case letters, digits and -, starting with a letter" in said


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing but a model"),
        pytest.param({"replicas": 0}, id="a fixed number of no replicas"),
        pytest.param({"resources": {"limits": {"cpu": 1, "memory": "1.5Gi"}}}, id="a quantity without quotes"),
        pytest.param({"engine": {"tensorParallel": 2}}, id="ranks without GPUs"),
        pytest.param({"engine": {"speculative": {"method": "ngram", "tokens": 8}}}, id="guesses looked up"),
        pytest.param({"engine": {"speculative": DRAFT}}, id="guesses of a draft model"),
        pytest.param({"rollout": {"maxSurge": 0, "maxUnavailable": "25%"}}, id="a rollout without a surge"),
        pytest.param({"replicas": 2, "scaling": scaling(mode="advisory")}, id="advice beside a number"),
        pytest.param({"engine": {"extraArgs": ["--max-body-size", "1Mi"]}}, id="a flag that no field sets"),
    ],
)
def test_what_is_right_is_accepted(kind: RealCluster, spec: Json) -> None:
    assert refusal(kind, {"model": SOURCE} | spec) == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_applies(kind: RealCluster, binaries: Binaries, example: Path) -> None:
    said = kind.kubectl(binaries.path("kubectl"), "apply", "--dry-run=server", "--validate=strict", "-f", str(example))
    assert said.count("(server dry run)") == len(list(yaml.safe_load_all(example.read_text())))


@pytest.mark.parametrize("page", ["README.md", "docs/scaling.md"])
def test_what_a_page_shows_applies(kind: RealCluster, binaries: Binaries, page: str) -> None:
    """Whole objects of kinds that are served here; KEDA's are not."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    shown = [b for b in blocks if b.startswith(("apiVersion: tidegate.dev/", "apiVersion: autoscaling/"))]
    assert shown
    for text in shown:
        words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
        assert "(server dry run)" in kind.kubectl(binaries.path("kubectl"), *words, text=text)


def test_a_scaled_service_shows_its_defaults(kind: RealCluster) -> None:
    """What a GitOps tool reads back: every default there is, and none where presence would mean something."""
    body = {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"model": SOURCE, "scaling": scaling(behavior={})},
    }
    answer = kind.http.post(
        kind.path("inferenceservices", "default"), json=copy.deepcopy(body), params={"dryRun": "All"}
    )
    spec = answer.json()["spec"]
    assert "replicas" not in spec
    assert "cost" not in spec
    assert spec["scaling"]["behavior"]["scaleDown"].get("stabilizationWindowSeconds") is None
    assert spec["engine"]["maxRunningRequests"] == 32
    assert spec["drain"] == {"timeout": "5m"}
    assert spec["rollout"] == {"progressDeadline": "10m", "autoRollback": False, "maxSurge": 1, "maxUnavailable": 0}
