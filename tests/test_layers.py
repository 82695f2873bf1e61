"""An import only points down."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"envsuite": 0, "harness": 1, "baselines": 2}
BASE = {"types", "errors", "spaces", "core", "registry", "panels", "cache"}
ENGINES = ("torch", "transformers", "textworld", "alfworld", "minigrid", "sklearn", "pandas", "docker", "PIL", "rich")


def imports(path: Path, top_level_only: bool = False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules():
    for package in FLOORS:
        yield from sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_down(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    floor = FLOORS[parts[0]]
    for name in imports(path):
        head, *rest = name.split(".")
        assert FLOORS.get(head, -1) <= floor, f"{path} imports {name} from a higher floor"
        assert head != "tests", f"{path} imports {name}"
        if parts[:2] == ("envsuite", "envs") and len(parts) > 3 and name.startswith("envsuite.envs."):
            assert rest[1] == parts[2], f"one environment imports another: {name}"
        if parts[0] == "envsuite" and len(parts) == 2 and parts[1] in BASE and head == "envsuite" and rest:
            assert rest[0] in BASE or name.startswith("envsuite.types"), f"the base imports {name}"


def test_neither_envsuite_nor_any_environments_module_imports_an_engine():
    code = (
        "import importlib, sys, envsuite\n"
        "for task in envsuite.tasks('*'): importlib.import_module(task.entry_point.partition(':')[0])\n"
        f"print([name for name in {ENGINES!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == "[]"


def test_every_extra_a_task_requires_is_declared():
    import tomllib

    import envsuite

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for task in envsuite.tasks("*"):
        assert not task.requires or task.requires in extras, task.id
