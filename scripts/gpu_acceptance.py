"""Check the Triton kernels against the plain reference on this machine's GPU, run the yardstick, and write one JSON
file. Needs torch and triton only. A part that fails leaves its traceback in the report and the others go on. Exit code
1 where anything differs or fails, 2 where there is no GPU."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_cases

SECONDS = 450
"""After which no other part is begun."""


def main() -> int:
    """Run everything; the path of the report is printed last."""
    tiny = "--tiny" in sys.argv[1:]
    if tiny:
        kernel_cases.interpret_triton()
    import torch

    if not tiny and not torch.cuda.is_available():
        print("no GPU: --tiny runs a few cases under Triton's interpreter", file=sys.stderr)
        return 2
    report = Report("cpu" if tiny else "cuda:0", tiny)
    report.run()
    return 0 if report.ok else 1


class Report:
    """What was found so far, written out after each part."""

    def __init__(self, device: str, tiny: bool) -> None:
        import torch
        import triton

        self._device, self._tiny, self._began = device, tiny, time.monotonic()
        self._path = Path(os.environ["OUT"]) / "gpu_acceptance.json"
        self.ok = True
        self._found: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU, interpreted",
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "checks": [],
        }

    def run(self) -> None:
        """The parts, the most telling first."""
        import gpu_yardstick
        import torch
        from tidegate_engine.kernels.triton_kernels import triton_kernels

        tiles = self._part("attention", lambda: gpu_yardstick.attention(self._device, self._tiny))
        kernels = triton_kernels(self._device, tiles[0] if tiles else None)
        if tiles:
            self._found["attention"] = tiles[1]
        yardstick = self._part("start", lambda: gpu_yardstick.Yardstick(self._device, self._tiny, kernels))
        if yardstick:
            self._found["start"] = {"capture_seconds": yardstick.capture_seconds}
            # The first run compiles what no capture has met.
            for name, temperature in (("first", 0.0), ("greedy", 0.0), ("greedy_again", 0.0), ("sampled", 0.7)):
                self._part(f"yardstick_{name}", lambda temperature=temperature: yardstick.run(temperature))
        yardstick = None  # its cache takes most of the memory
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()
        self._part("all_checks", self._checks)
        self._part("logits", self._logits)
        self._found["ok"] = self.ok
        self._write()
        shown = {name: self._found.get(name) for name in ("attention", "yardstick_greedy", "yardstick_sampled")}
        for part in shown.values():
            if isinstance(part, dict):
                part.pop("timed", None)
        print(json.dumps(shown), self._path)

    def _checks(self) -> dict[str, int]:
        from gpu_checks import checks

        failed = 0
        for check in checks(self._device, self._tiny):
            self._found["checks"].append(check)
            failed += not check["ok"]
            print(("ok  " if check["ok"] else "FAIL"), check["dtype"], check["check"], check["error"], flush=True)
        self.ok = self.ok and not failed
        return {"run": len(self._found["checks"]), "failed": failed}

    def _logits(self) -> dict[str, Any]:
        """The largest difference, relative to the largest logit, of prefill and decode here and on the CPU."""
        import gpu_yardstick
        import torch
        from forward_steps import Sequences
        from tidegate_engine.kernels.cpu import cpu_kernels
        from tidegate_engine.kernels.triton_kernels import triton_kernels

        sizes = gpu_yardstick.TINY if self._tiny else gpu_yardstick.QWEN3 | {"layers": 4, "vocabulary": 4096}
        config = gpu_yardstick.qwen3(sizes, 64)
        prompts = [[(7 * at) % config.vocab_size for at in range(length)] for length in (33, 5, 1)]
        model = gpu_yardstick.model_on
        here = Sequences(model(self._device, torch.float32, config, triton_kernels(self._device)), prompts, 64)
        there = Sequences(model("cpu", torch.float32, config, cpu_kernels()), prompts, 64)
        worst = 0.0
        for _ in range(2):
            found, wanted = here.step().cpu(), there.step()
            worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max()))
            for sequences in (here, there):
                for tokens in sequences.tokens:
                    tokens.append(11)
        self.ok = self.ok and worst <= 1e-3
        return {"error": worst, "tolerance": 1e-3, "ok": worst <= 1e-3}

    def _part(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work gives; None where it raises or there is no time for it, of which the report then tells."""
        elapsed = time.monotonic() - self._began
        if elapsed > SECONDS:
            self._found[name] = f"not begun after {elapsed:.0f} s"
            self.ok = False
            return None
        try:
            found = work()
        except Exception:  # noqa: BLE001  the machine may be had for minutes, so every part is tried
            self._found[name] = {"failed": traceback.format_exc()}
            self.ok = False
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
            return None
        finally:
            self._found.setdefault("seconds", {})[name] = time.monotonic() - self._began - elapsed
        if isinstance(found, dict):
            self._found[name] = found
            print(name, {key: value for key, value in found.items() if key != "timed"}, flush=True)
        self._write()
        return found

    def _write(self) -> None:
        self._path.write_text(json.dumps(self._found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
