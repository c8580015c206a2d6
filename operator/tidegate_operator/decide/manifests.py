"""The objects that make a service: ServiceAccount, NetworkPolicy, Service, PodDisruptionBudget and Deployment.

Pure: the same spec, template and number give the same documents, whose server-side apply then changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate_operator.decide.engine_container import ADMIN_PORT, HTTP_PORT
from tidegate_operator.decide.pod_template import Template, labels, selector
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import InferenceServiceSpec

ADMIN_ACCESS = "tidegate.dev/admin-access"
"""Label (value "true") of a namespace whose pods may reach the admin port, as a Prometheus does."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The InferenceService that the children belong to, and go with."""

    key: ServiceKey
    uid: str

    def metadata(self) -> Json:
        """The children carry its name."""
        return {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": labels(self.key.name),
            "ownerReferences": [
                {
                    "apiVersion": "tidegate.dev/v1alpha1",
                    "kind": "InferenceService",
                    "name": self.key.name,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }


def children(
    owner: Owner, spec: InferenceServiceSpec, template: Template, *, replicas: int, operator_namespace: str
) -> tuple[Json, ...]:
    """All of them, in the order to apply: whatever a pod needs comes before the pods."""
    return (
        service_account(owner),
        network_policy(owner, operator_namespace),
        service(owner),
        disruption_budget(owner),
        deployment(owner, spec, template, replicas),
    )


def deployment(owner: Owner, spec: InferenceServiceSpec, template: Template, replicas: int) -> Json:
    """`replicas` is always sent: an owned field that is left out is removed, and then means one."""
    metadata = owner.metadata()
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "annotations": template.annotations()},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": int(spec.rollout.progress_deadline),
            "selector": {"matchLabels": selector(owner.key.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": spec.rollout.max_surge, "maxUnavailable": spec.rollout.max_unavailable},
            },
            "template": template.body,
        },
    }


def service(owner: Owner) -> Json:
    """Port 80 of the service's name; the admin port is not part of it."""
    port = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(),
        "spec": {"type": "ClusterIP", "selector": selector(owner.key.name), "ports": [port]},
    }


def service_account(owner: Owner) -> Json:
    """An identity without rights and without a token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(),
        "automountServiceAccountToken": False,
    }


def disruption_budget(owner: Owner) -> Json:
    """One pod at a time leaves for a node that is emptied, also where it is the only one: a budget of none would keep
    the node from ever being emptied. A pod that is not healthy never stands in the way."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(owner.key.name)},
        },
    }


def network_policy(owner: Owner, operator_namespace: str) -> Json:
    """Anyone may ask the model; the admin port, which can drain a pod, is for the operator's namespace and for those
    that carry the label tidegate.dev/admin-access: "true". The kubelet's probes come from the node and always pass."""
    allowed = [{"kubernetes.io/metadata.name": operator_namespace}, {ADMIN_ACCESS: "true"}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(),
        "spec": {
            "podSelector": {"matchLabels": selector(owner.key.name)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]},
                {
                    "from": [{"namespaceSelector": {"matchLabels": match}} for match in allowed],
                    "ports": [{"port": ADMIN_PORT, "protocol": "TCP"}],
                },
            ],
        },
    }
