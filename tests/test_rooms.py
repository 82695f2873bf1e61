"""Rooms: every folder of the product has a user, and stays within its budget of lines.

`python -m tests.test_rooms` prints the table. A room is a folder, or the modules directly in a package. It is used by
a page (README, tutorial, how-to, a family's page), a suite, a board, a recipe or a study if that page names a command or module from
which the room's modules are reached: by imports, also inside functions, and by names in strings (`"package.module:Class"`).
"""

import ast
import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path

from baselines.algorithms import ALGORITHMS, module_of
from envsuite import registry
from harness.__main__ import VERBS
from harness.suites import suites

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("envsuite", "harness", "baselines")
BUDGETS = {
    "envsuite, checks, compat": (["envsuite", "envsuite/checks", "envsuite/compat"], 3_150),
    "sandbox": (["envsuite/sandbox"], 4_400),
    "alfworld, babyai, textworld": (
        ["envsuite/envs/alfworld", "envsuite/envs/babyai", "envsuite/envs/textworld"],
        10_500,
    ),
    "overcooked": (["envsuite/envs/overcooked"], 4_500),
    "virtualhome": (["envsuite/envs/virtualhome"], 5_050),
    "datascicoding": (["envsuite/envs/datascicoding"], 6_000),
    "swegym": (["envsuite/envs/swegym"], 8_750),
    "harness": (["harness"], 25_600),
    "baselines": (["baselines"], 9_200),
    "tests": (["tests"], 44_600),
    "benchmarks": (["benchmarks"], 7_750),
}
"""Folders (with what is below them, unless another row names it) and the most lines of Python that they may have.

A room may not grow beyond these numbers; whoever makes one smaller lowers its number."""
MOST_PRODUCT = 76_900
FOLDERS = ("tutorial", "howto", "envs")
"""Folders of pages whose commands, tasks and modules count as used."""
DOTTED = re.compile(rf"({'|'.join(PRODUCT)})(\.\w+)+")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> dict[str, Path]:
    """Returns the file of each module of the product."""
    return {module_name(path): path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))}


def lines(paths) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


@functools.cache
def targets(name: str) -> frozenset[str]:
    """Returns the modules that a module imports or names in a string."""
    found = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.match(node.value):
            found.add(node.value.partition(":")[0])
    return frozenset(found & modules().keys())


@functools.cache
def reached(start: str) -> frozenset[str]:
    """Returns all modules that a module reaches."""
    seen, waiting = {start}, [start]
    while waiting:
        for name in targets(waiting.pop()) - seen:
            seen.add(name)
            waiting.append(name)
    return frozenset(seen)


def commands() -> dict[str, str]:
    """Returns the module of each verb of `envsuite`."""
    return {name: verb.module or "baselines.cli" for name, verb in VERBS.items()}


def named_in(text: str) -> set[str]:
    """Returns the modules that a page names: by commands, by `python -m`, or in its code."""
    verbs = commands()
    found = {verbs[verb] for verb in re.findall(r"\benvsuite[ -]([a-z]+)\b", text) if verb in verbs}
    tasks = {task for task in re.findall(r"\b[A-Z][\w.]*-[\w.-]*v\d+\b", text) if task in registry.TASKS}
    found |= {registry.TASKS[task].entry_point.partition(":")[0] for task in tasks}
    for match in DOTTED.finditer(text):
        parts = match[0].split(".")
        found |= {".".join(parts[:end]) for end in range(2, len(parts) + 1)} & modules().keys()
    return found


@functools.cache
def users() -> dict[str, frozenset[str]]:
    """Returns the modules that each page, suite and recipe reaches, by the user's name."""
    pages = [ROOT / "README.md", *(page for part in FOLDERS for page in (ROOT / "docs" / part).glob("*.md"))]
    starts = {str(page.relative_to(ROOT)): named_in(page.read_text()) for page in pages}
    for suite in suites.read():
        starts[f"suite {suite}"] = {task.entry_point.partition(":")[0] for task in suites.tasks(suite)}
    for recipe in (ROOT / "baselines/recipes").glob("*.toml"):
        settings = tomllib.loads(recipe.read_text())
        tasks = [registry.TASKS[task] for task in settings.get("tasks", []) if task in registry.TASKS]
        algorithm = module_of(settings.get("algorithm", "sft")).__name__
        starts[f"recipe {recipe.stem}"] = {task.entry_point.partition(":")[0] for task in tasks} | {algorithm}
    for plan in (ROOT / "leaderboards/training").glob("*/plan.json"):
        names = {name for name in re.findall(r"\w+", plan.read_text()) if name in ALGORITHMS}
        starts[f"study {plan.parent.name}"] = {module_of(name).__name__ for name in names}
    return {
        user: frozenset().union(*(reached(name) for name in names if name in modules()))
        for user, names in starts.items()
    }


def rooms() -> dict[str, list[str]]:
    """Returns the modules of each folder of the product."""
    found = defaultdict(list)
    for name, path in modules().items():
        found[str(path.parent.relative_to(ROOT))].append(name)
    return dict(found)


def rows() -> list[tuple[str, int, list[str]]]:
    """Returns folder, lines and users of each room."""
    return [
        (room, lines(modules()[name] for name in names), [user for user, seen in users().items() if seen & {*names}])
        for room, names in sorted(rooms().items())
    ]


def budget_of(row: str) -> int:
    """Returns the lines of a row of BUDGETS."""
    folders = BUDGETS[row][0]
    others = {folder for name, (more, _) in BUDGETS.items() if name != row for folder in more}
    others.add("envsuite/envs")  # a family without a row of its own
    paths = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            inside = [
                str(parent.relative_to(ROOT)) for parent in path.parents if parent != ROOT and ROOT in parent.parents
            ]
            owner = next((name for name in inside if name in others or name in folders), "")
            if owner in folders:
                paths.add(path)
    return lines(paths)


def test_every_room_has_a_user():
    assert [room for room, count, found in rows() if count > 20 and not found] == []


def test_rooms_stay_within_their_budgets():
    over = {row: f"{budget_of(row)} of {most}" for row, (_, most) in BUDGETS.items() if budget_of(row) > most}
    assert over == {}
    assert lines(modules().values()) <= MOST_PRODUCT


if __name__ == "__main__":
    for room, count, found in rows():
        print(f"{count:6} {room:42} {len(found):3} users: {', '.join(found[:3])}")
    for row, (_, most) in BUDGETS.items():
        print(f"{budget_of(row):6} of {most:6} {row}")
    print(f"{lines(modules().values()):6} of {MOST_PRODUCT:6} product")
