"""What each program is told: its files as text, its flags as a list. Pure; a test reads them."""

from __future__ import annotations

from pathlib import Path

from tidegate_testbed.instance import NODE_IP, SERVICES, Instance
from tidegate_testbed.network import BRIDGE

PAUSE_IMAGE = "localhost/tidegate/pause:1"


def cni(instance: Instance) -> str:
    """Pods on the bridge, each reachable from the namespace; no way out to any other network."""
    return f"""{{"cniVersion": "1.0.0", "name": "tidegate", "plugins": [{{"type": "bridge", "bridge": "{BRIDGE}",
 "isGateway": true, "ipMasq": false, "hairpinMode": true,
 "ipam": {{"type": "host-local", "dataDir": "{instance.state}/ipam",
 "ranges": [[{{"subnet": "10.88.0.0/16", "rangeStart": "10.88.1.10", "gateway": "{NODE_IP}"}}]],
 "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""


def containerd(instance: Instance) -> str:
    """Images in the store that outlives `down`; network namespaces under our own state folder."""
    return f"""version = 3
root = "{instance.image_store}"
state = "{instance.state}/containerd"
[grpc]
address = "{instance.containerd_socket}"
[ttrpc]
address = "{instance.containerd_socket}.ttrpc"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE a negative score is refused, and every sandbox with it.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{instance.state}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
# Both would make folders and a socket at fixed places of the host.
[plugins.'io.containerd.nri.v1.nri']
disable = true
[plugins.'io.containerd.internal.v1.opt']
path = "{instance.state}/opt"
"""


def kubelet(instance: Instance) -> str:
    """Images are never collected and nothing is evicted for a disk that others fill; pods start side by side.

    A CPU limit counts over 10 ms, not 100: a pod with half a processor is then half as fast, as a slower machine is,
    and not at full speed for 50 ms and stopped for the next 50.
    """
    pki = instance.state / "pki"
    return f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /{instance.cgroup}
containerRuntimeEndpoint: unix://{instance.containerd_socket}
address: {NODE_IP}
port: 10250
healthzPort: 10248
authentication: {{x509: {{clientCAFile: {pki}/ca.crt}}, webhook: {{enabled: true}}, anonymous: {{enabled: false}}}}
authorization: {{mode: Webhook}}
tlsCertFile: {pki}/kubelet-server.crt
tlsPrivateKeyFile: {pki}/kubelet-server.key
failSwapOn: false
featureGates: {{CustomCPUCFSQuotaPeriod: true}}
cpuCFSQuotaPeriod: 10ms
serializeImagePulls: false
imageGCHighThresholdPercent: 100
clusterDNS: ["{NODE_IP}"]
clusterDomain: cluster.local
evictionHard: {{memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%"}}
podLogsDir: {instance.state}/kubelet/podlogs
volumePluginDir: {instance.state}/kubelet/volume-plugins
"""


def kube_proxy(instance: Instance) -> str:
    """nftables, and no touch to the host's connection-tracking limits."""
    return f"""apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.88.0.0/16
hostnameOverride: node1
clientConnection: {{kubeconfig: {instance.inner_kubeconfig}}}
conntrack: {{maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
"""


def corefile(instance: Instance) -> str:
    """The cluster's names and no others: there is no way out to ask for them."""
    return f"""cluster.local:53 {{
  bind {NODE_IP}
  kubernetes cluster.local {{
    kubeconfig {instance.inner_kubeconfig}
  }}
  errors
}}
"""


def resolv_conf() -> str:
    """As a pod of the namespace `default` has it."""
    return f"nameserver {NODE_IP}\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"


def etcd_flags(instance: Instance) -> list[str]:
    """Without fsync: a testbed's data need not outlive the machine, and the disk is shared."""
    return [
        f"--data-dir={instance.state}/etcd", "--unsafe-no-fsync", "--log-level=warn",
        "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ]  # fmt: skip


def apiserver_flags(pki: Path) -> list[str]:
    """With the front-proxy flags, or no metrics API could be aggregated for an HPA."""
    return [
        "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--secure-port=6443",
        f"--advertise-address={NODE_IP}", f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC", "--allow-privileged",
        "--kubelet-preferred-address-types=InternalIP",
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--requestheader-client-ca-file={pki}/ca.crt", "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--enable-aggregator-routing",
        f"--proxy-client-cert-file={pki}/front-proxy.crt", f"--proxy-client-key-file={pki}/front-proxy.key",
        f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key",
    ]  # fmt: skip


def controller_manager_flags(instance: Instance) -> list[str]:
    """Alone, so it waits for no lease; HPAs look every 5 s, so that nobody waits for their usual 15."""
    pki = instance.state / "pki"
    return [
        f"--kubeconfig={instance.state}/kcm.kubeconfig", "--leader-elect=false", "--use-service-account-credentials",
        "--horizontal-pod-autoscaler-sync-period=5s",
        f"--service-account-private-key-file={pki}/sa.key", f"--root-ca-file={pki}/ca.crt",
    ]  # fmt: skip


def scheduler_flags(instance: Instance) -> list[str]:
    """Alone, so it waits for no lease."""
    return [f"--kubeconfig={instance.state}/scheduler.kubeconfig", "--leader-elect=false"]


def kubelet_flags(instance: Instance) -> list[str]:
    """What the kubelet's configuration file cannot say."""
    return [
        f"--config={instance.state}/kubelet.yaml", f"--kubeconfig={instance.state}/node1.kubeconfig",
        f"--root-dir={instance.state}/kubelet", "--hostname-override=node1", f"--node-ip={NODE_IP}",
    ]  # fmt: skip
