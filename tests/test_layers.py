"""Layering: imports only point to lower floors, without circles, and no engine is imported early."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"envsuite": 0, "harness": 1, "baselines": 2}
BASE = {"types", "errors", "messages", "spaces", "tools", "core", "plugins", "registry", "panels", "cache", "vector"}
FOLDERS = {
    "harness": [
        ["types", "reasoning", "settings"],
        ["steps"],
        ["records", "waiting"],
        ["prompting"],
        ["stats", "lm"],
        ["servers"],
        ["policies", "rollout", "execution"],
        ["play", "cluster", "episodes", "hash_chain", "config_file"],
        ["evaluate"],
        ["language_ability", "cost", "difficulty_cards"],
        ["generalization"],
        ["suites"],
        ["report", "interop", "agents"],
        ["provenance"],
        ["cli"],
        ["watch", "grading", "hub", "mining"],
        ["__main__"],
    ],
    "baselines": [
        ["ranges", "math", "distributed", "logging"],
        ["tables", "generation", "batch", "metrics"],
        ["networks", "episode_rows"],
        ["algorithms"],
        ["consistency"],
        ["recipe"],
        ["run_log", "collection"],
        ["train"],
        ["memory"],
        ["studies"],
        ["cli"],
    ],
}
"""Folders and modules of a package, lowest floor first; those on one floor do not import each other."""
ENGINES = ("torch", "transformers", "textworld", "alfworld", "minigrid", "sklearn", "pandas", "docker", "PIL", "rich")


@functools.cache
def parsed(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the modules and names that a file imports, and the classes that it defines."""
    names, classes = [], []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
    return tuple(names), tuple(classes)


def imports(path: Path) -> tuple[str, ...]:
    return parsed(path)[0]


def modules():
    for package in FLOORS:
        yield from sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_down(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    floor = FLOORS[parts[0]]
    for name in imports(path):
        head, *tail = name.split(".")
        assert FLOORS.get(head, -1) <= floor, f"{path} imports {name} from a higher floor"
        assert head != "tests", f"{path} imports {name}"
        if parts[:2] == ("envsuite", "envs") and len(parts) > 3 and name.startswith("envsuite.envs."):
            assert tail[1] == parts[2], f"one environment imports another: {name}"
        if head == "envsuite" and tail[:1] == ["compat"]:
            assert parts[:2] == ("envsuite", "compat"), f"{path} imports {name}, which is for users only"
        if parts[0] == "envsuite" and len(parts) == 2 and parts[1] in BASE and head == "envsuite" and tail:
            assert tail[0] in BASE or name.startswith("envsuite.types"), f"the base imports {name}"


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_inside_a_package_only_import_lower_ones(package):
    rank = {room: floor for floor, rooms in enumerate(FOLDERS[package]) for room in rooms}
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] == "__init__":
            continue
        for name in imports(path):
            name_parts = name.split(".")
            if (
                name_parts[0] != package
                or len(name_parts) < 2
                or name_parts[1] == parts[1]
                or name_parts[1] not in rank
            ):
                continue
            if rank[name_parts[1]] >= rank[parts[1]]:
                wrong.append(f"{'.'.join(parts)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_and_module_has_a_floor():
    for package, floors in FOLDERS.items():
        rooms = {path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py"} - {"__init__"}
        rooms |= {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert rooms == {room for rooms in floors for room in rooms}


def test_no_folder_holds_more_than_fifteen_modules():
    counts = Counter(path.parent for path in modules() if path.stem not in ("__init__", "__main__"))
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > 15} == {}


def test_no_modules_import_each_other_in_a_circle():
    known = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in modules()
    }
    arrows = {
        name: {target for target in imports(path) if target in known and not f"{name}.".startswith(f"{target}.")}
        for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in arrows[name]:
                visit(target, [*trail, name])
            done.add(name)

    for name in known:
        visit(name, [])


def test_no_two_classes_share_a_name():
    places: dict[str, list[str]] = {}
    for path in modules():
        for name in parsed(path)[1]:
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_neither_envsuite_nor_any_environments_module_imports_an_engine():
    code = (
        "import importlib, sys, envsuite\n"
        "for task in envsuite.tasks('*'): importlib.import_module(task.entry_point.partition(':')[0])\n"
        f"print([name for name in {ENGINES!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"


def test_every_extra_a_task_requires_is_declared():
    import tomllib

    import envsuite

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for task in envsuite.tasks("*"):
        assert not task.requires or task.requires in extras, task.id
