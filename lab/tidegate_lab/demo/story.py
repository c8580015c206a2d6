"""The order of the demo, and what it says on the way."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.markup import escape

from tidegate_lab.cluster import Cluster, Name
from tidegate_lab.demo import burst, objects
from tidegate_lab.demo.places import Place, apply
from tidegate_lab.demo.shell import Shell, Step, StepFailed
from tidegate_lab.load.report import seconds
from tidegate_lab.watch.look import Watcher, condition

SERVICE = Name(objects.NAMESPACE, "smollm2")
EXAMPLE = "crds/examples/smollm2.yaml"
RELEASE, SYSTEM = "tidegate", "tidegate-system"
QUESTION = "What is the capital of Japan?"
"""One whose answer every processor gives: its model is 2.7 nats surer of the first word than of the next best."""
READY_WITHIN_S = 300


def tell(shell: Shell, place: Place, worth: float, seed: int) -> int:
    """All of it. Exit code 1 where a request failed, or replicas did not go to three and back."""
    began = time.monotonic()
    _title(shell, f"Setting up {place.title}")
    place.prepare()

    _title(shell, f"Installing the chart and applying {EXAMPLE}")
    install(shell, place)
    apply(shell, place, [objects.namespace()])
    place.put_model()
    # A service keeps its pods as they are until its spec changes; a second demo is to show the newest image.
    here = [*place.kubectl, "-n", SERVICE.namespace]
    shell.read([*here, "delete", "infsvc", SERVICE.name, "--ignore-not-found", "--wait"])
    shell.read([*here, "wait", "--for=delete", "pod", "-l", f"tidegate.dev/service={SERVICE.name}", "--timeout=180s"])
    shell.read([*here, "apply", "-f", EXAMPLE])
    cluster = Cluster(place.kubeconfig)
    wait_ready(shell, cluster, SERVICE)

    _title(shell, f"Asking through the Service: {QUESTION}")
    shell.console.print(f"  {escape(_ask(shell, place))}", highlight=False)

    url = f"http://{SERVICE.name}.{SERVICE.namespace}"
    plan = burst.Burst(url=url, model=SERVICE.name, worth=worth, seed=seed)
    _title(shell, "Measuring what one replica serves")
    measured = burst.measure(shell, place, plan)
    rate = measured.served_per_s
    _say(shell, f"{rate:.2f} requests/s, {measured.generated_tokens / measured.took_s:.1f} tokens/s")

    _title(
        shell, f"A burst of {worth:g} times that, {worth * rate:.2f} requests/s, then a trickle of {plan.calm_rate:g}"
    )
    verdict = burst.run(shell, place, Watcher(cluster, SERVICE), plan, measured)

    _title(shell, "How it went")
    _sum_up(shell, verdict, time.monotonic() - began)
    _next(shell, place)
    for fault in verdict.faults:
        shell.console.print(f"[red]demo failed:[/red] {escape(fault)}", highlight=False, soft_wrap=True)
    return 1 if verdict.faults else 0


def _title(shell: Shell, text: str) -> None:
    shell.console.print(f"\n[bold]{escape(text)}[/bold]", highlight=False)


def install(shell: Shell, place: Place) -> None:
    """The chart, with the images of this tree, until the operator runs."""
    values = {"image.operator": place.images.operator, "image.engine": place.images.engine}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    upgrade = [*place.helm, "upgrade", "--install", RELEASE, "helm/tidegate", "--namespace", SYSTEM]
    command = [*upgrade, "--create-namespace", *settings, "--wait", "--timeout", "180s"]
    shell.run(Step("Chart", [command], quiet=True))


def wait_ready(shell: Shell, cluster: Cluster, name: Name) -> None:
    """Say what its condition Ready says, until it is True. Raises StepFailed where it takes too long."""
    until, shown, began = time.monotonic() + READY_WITHIN_S, "", time.monotonic()
    while True:
        ready = condition(cluster.service(name), "Ready")
        said = f"Ready={ready.status}, {ready.reason}: {ready.message}"
        if said != shown:
            shell.console.print(f"  {time.monotonic() - began:4.0f} s  {escape(said)}", highlight=False, soft_wrap=True)
            shown = said
        if ready.status == "True":
            return
        if time.monotonic() > until:
            raise StepFailed(f"{name} was not ready within {READY_WITHIN_S} s: {ready.reason}: {ready.message}")
        time.sleep(0.5)


def _ask(shell: Shell, place: Place) -> str:
    body = {
        "model": SERVICE.name,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 40,
        "temperature": 0,
    }
    path = f"/api/v1/namespaces/{SERVICE.namespace}/services/http:{SERVICE.name}:80/proxy/v1/chat/completions"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(body))
        file.flush()
        answer = json.loads(shell.read([*place.kubectl, "create", "--raw", path, "-f", file.name]))
    return str(answer["choices"][0]["message"]["content"]).strip()


def _say(shell: Shell, text: str) -> None:
    shell.console.print(f"  {escape(text)}", highlight=False, soft_wrap=True)


def _sum_up(shell: Shell, verdict: burst.Verdict, took_s: float) -> None:
    _say(shell, f"sent {verdict.sent}, completed {verdict.completed}, failed {verdict.failed}")
    for kind, number in sorted(sum((Counter(load.failures) for load in verdict.loads), Counter()).items()):
        _say(shell, f"  {number} failed by {kind}")
    for title, of in (("TTFT", verdict.burst.ttft), ("TPOT", verdict.burst.tpot)):
        if of:
            _say(shell, f"{title} of the burst: p50 {seconds(of.p50)}, p99 {seconds(of.p99)}, {of.count} samples")
    last = verdict.seen.looks[-1].ready
    _say(shell, f"replicas: 1 -> {verdict.seen.most_ready} -> {last}; all of it took {took_s / 60:.1f} minutes")


def _next(shell: Shell, place: Place) -> None:
    kubectl = Path(str(place.kubectl[0]))
    inside = f"kubectl -n {SERVICE.namespace}"
    _title(shell, "The cluster stays up. Try")
    _say(shell, f"export KUBECONFIG={place.kubeconfig} PATH={kubectl.parent}:$PATH")
    _say(shell, f"{inside} get infsvc,deploy,pods")
    _say(shell, f"{inside} describe infsvc {SERVICE.name}    # conditions, and why it scaled")
    _say(shell, f"{inside} port-forward svc/{SERVICE.name} 8000:80 &    # then: curl 127.0.0.1:8000/v1/models")
    _say(shell, f".venv/bin/tidegate watch {SERVICE}")
    _say(shell, f"{inside} edit infsvc {SERVICE.name}    # minReplicas: 0 is refused, with why")
    _say(shell, "make down")
