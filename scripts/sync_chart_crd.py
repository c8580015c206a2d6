"""Copy crds/inferenceservice.yaml into the chart: `python3 scripts/sync_chart_crd.py`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "crds/inferenceservice.yaml"
TARGET = ROOT / "helm/tidegate/templates/crd.yaml"

BEFORE = (
    "{{- if .Values.crds.install }}\n# Made by scripts/sync_chart_crd.py; change crds/inferenceservice.yaml instead.\n"
)
AFTER = "{{- end }}\n"
# In templates/ an upgrade of the chart upgrades the CRD; kept, uninstalling the chart deletes no service.
KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def chart_crd(crd: str) -> str:
    """The CRD as a template of the chart."""
    name = "metadata:\n"
    if crd.count(f"\n{name}") != 1 or "{{" in crd:
        raise SystemExit(f"{SOURCE.name}: expected one top-level `metadata:` and no `{{{{`, which Helm would read")
    return BEFORE + crd.replace(f"\n{name}", f"\n{name}{KEEP}") + AFTER


if __name__ == "__main__":
    TARGET.write_text(chart_crd(SOURCE.read_text()))
