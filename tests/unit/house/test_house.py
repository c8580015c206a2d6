"""What is true of the whole tree: sizes, names, and nothing in it that holds only on one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = {"operator": "tidegate_operator", "engine_image": "tidegate_engine", "lab": "tidegate_lab"}
OTHERS = ("testbed/tidegate_testbed", "bench/tidegate_bench", "bench/tidegate_bench_operator")
PACKAGES = (*(f"{folder}/{package}" for folder, package in ROOMS.items()), *OTHERS)
REGISTRIES = re.compile("|".join(("pypi[.]org", "pythonhosted[.]org", "proxy[.]golang[.]org", "deb[.]debian[.]org")))
MACHINES = re.compile(r"(?<![\w.$}/-])/(work|root|home|Users)/(?!\.cache:|\.cache\b)\w")


def tracked() -> list[Path]:
    """Every file of the project: what git knows, and what it will know; what it ignores is not part of it."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def found_in(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_module_has_more_than_400_lines() -> None:
    long = {str(path.relative_to(ROOT)): n for path in modules() if (n := len(path.read_text().splitlines())) > 400}
    assert not long


def test_no_module_has_a_name_that_says_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "constants", "misc", "interfaces", "base_utils"}
    assert not [str(path) for path in modules() if path.stem in nothing or path.parent.name in nothing]


def test_nothing_in_operator_can_shadow_the_standard_library() -> None:
    # With the root on the path, operator/__init__.py would be imported for `import operator`.
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not [p for p in (ROOT / "operator").rglob("*.py") if p.name.startswith(("test_", "conftest"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_and_module_says_what_it_is_for(package: str) -> None:
    silent = [p for p in sorted((ROOT / package).rglob("*.py")) if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not silent


def test_every_package_with_rooms_states_its_law() -> None:
    rooms = [p for package in PACKAGES for p in (ROOT / package).glob("*/__init__.py")]
    said = {str(p.relative_to(ROOT)): ast.get_docstring(ast.parse(p.read_text())) or "" for p in rooms}
    lawless = [name for name, text in said.items() if "Law:" not in text]
    assert not lawless


def test_nothing_names_a_folder_of_one_machine() -> None:
    assert not found_in(MACHINES, [p for p in tracked() if p.name != "test_house.py"])


def test_nothing_names_the_host_of_a_package_registry() -> None:
    # go.sum and go.mod name modules, which are no hosts to ask; lock.sh says what it refuses.
    assert not found_in(REGISTRIES, [p for p in tracked() if p.name not in ("lock.sh", "go.sum", "go.mod")])


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name)
def test_requirements_are_pinned_and_hashed(path: Path) -> None:
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    assert entries
    unpinned = [e.splitlines()[0] for e in entries if "==" not in e.splitlines()[0] or "--hash=sha256:" not in e]
    assert not unpinned
    assert not re.search(r"://", path.read_text())


def test_each_dockerfile_installs_only_its_own_requirements() -> None:
    for folder, name in (("operator", "operator"), ("engine_image", "engine")):
        last_stage = (ROOT / folder / "Dockerfile").read_text().rpartition("\nFROM ")[2]
        named = set(re.findall(r"requirements/(\w+)\.txt", last_stage))
        assert named == {name}


def test_the_load_generator_finds_all_it_imports_in_the_operators_image() -> None:
    imported = {
        name.split(".")[0]
        for path in (ROOT / "lab/tidegate_lab/load").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)])
        if name
    }
    foreign = imported - set(sys.stdlib_module_names) - {"tidegate_lab"}
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements/operator.txt").read_text(), re.M))
    assert foreign <= pinned


def test_every_verb_of_the_makefile_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split())  # type: ignore[union-attr]
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, re.M))
    assert phony == explained
    assert len(explained) <= 14
