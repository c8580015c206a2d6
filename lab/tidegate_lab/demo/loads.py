"""A load that runs as a job in the cluster: started, followed by its log, ended early where that is enough."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping

from tidegate_lab.demo.objects import NAMESPACE, load_code, load_job
from tidegate_lab.demo.places import Place, apply
from tidegate_lab.demo.shell import Shell, StepFailed
from tidegate_lab.load.report import Report
from tidegate_lab.load.run import Progress


class JobOfLoad:
    """One load job. `report` is set when it has ended; `progress` is its newest word until then."""

    def __init__(self, shell: Shell, place: Place, name: str, flags: Mapping[str, str | float]) -> None:
        """Start it, and wait until it runs. Raises StepFailed where it does not."""
        self._shell, self._name = shell, name
        self._kubectl = [str(part) for part in (*place.kubectl, "-n", NAMESPACE)]
        self.progress: Progress | None = None
        self.report: Report | None = None
        self._said: list[str] = []
        shell.read([*self._kubectl, "delete", "job", name, "--ignore-not-found", "--wait"])
        apply(shell, place, [load_code(), load_job(name, place.images.operator, flags)])
        shell.read([*self._kubectl, "wait", f"job/{name}", "--for=jsonpath={.status.ready}=1", "--timeout=120s"])
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    @property
    def running(self) -> bool:
        return self._following.is_alive()

    def stop(self) -> None:
        """Let it send nothing more; what is in flight is still waited for, in the job."""
        if self.running:
            self._shell.read([*self._kubectl, "exec", f"job/{self._name}", "--", "sh", "-c", "kill -TERM 1"])

    def wait(self, within_s: float) -> Report:
        """The report, once it has ended. Raises StepFailed with its last words where it ended without one."""
        self._following.join(within_s)
        if self.report is None:
            raise StepFailed(f"job {self._name} gave no report; it said:\n" + "\n".join(self._said[-8:]))
        return self.report

    def _follow(self) -> None:
        command = [*self._kubectl, "logs", "-f", f"job/{self._name}"]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as log:
            for line in log.stdout or ():
                self._hear(line.strip())

    def _hear(self, line: str) -> None:
        self._said.append(line)
        if not line.startswith("{"):
            return
        told = json.loads(line)
        if "progress" in told:
            self.progress = Progress(**told["progress"])
        else:
            self.report = Report.from_json(told)
