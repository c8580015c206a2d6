"""Write the chart's copy of the InferenceService definition; `--check` only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crds" / "inferenceservice.yaml"
COPY = ROOT / "helm" / "tidegate" / "templates" / "crd.yaml"


def rendered() -> str:
    """The source between the switch, kept at uninstall: without its definition every service would be deleted."""
    head, name, tail = SOURCE.read_text().partition("metadata:\n")
    annotation = "  annotations:\n    helm.sh/resource-policy: keep\n"
    return f"{{{{- if .Values.crds.install }}}}\n{head}{name}{annotation}{tail}{{{{- end }}}}\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if COPY.read_text() != rendered():
            sys.exit(f"{COPY.relative_to(ROOT)} differs from {SOURCE.relative_to(ROOT)}: run scripts/sync_chart_crd.py")
    else:
        COPY.write_text(rendered())
