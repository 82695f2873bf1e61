"""pytest plugin that detects changes to the test runner by the code under test, and selects tests.

Its text is sent into the sandbox, so it imports nothing of envsuite and runs on Python 3.6 with
pytest 3.6 and later. Planted tasks register `Seal` themselves (`judge.runner`). In published
records pytest loads this file with `-p` (`published.sealing`): then a test during which the runner was
changed is reported as failed.
"""

import importlib
import json
import os
import sys
from typing import Any

import pytest

PLAN = "ENVSUITE_TEST_PLAN"
"""variable that holds the plan of a published record's run: {"only": ids without parameters, or None for all;
"phases": None, or the name of the module `forking` in this folder, which also has the file plan.json}"""
RUNNER = (
    "_pytest.runner", "_pytest.reports", "_pytest.python", "_pytest.unittest", "_pytest.main",
    "_pytest.nodes", "_pytest.outcomes", "_pytest.skipping", "_pytest.terminal", "_pytest._code.code",
    "_pytest.assertion.util", "_pytest.config", "pluggy._hooks", "pluggy._callers", "pluggy._manager",
    "pluggy._result", "pluggy.callers", "pluggy.hooks", "pluggy.manager", "unittest.case", "json",
)  # fmt: skip
"""modules whose functions and classes decide a verdict, in all versions of pytest"""
WORLD = ("builtins", "time", "datetime")
"""modules that tests may patch, and the code under test may not"""
HARMLESS = {"dir", "print", "input", "help", "breakpoint", "exit", "quit"}
"""functions of these that no comparison depends on; the package `sure`, for one, replaces `dir`"""

Part = tuple[Any, str, Any, Any]
"""namespace, name, object, and its code"""


class Seal:
    """Detects changes to the test runner and to collected tests by the code under test.

    It checks pytest, `unittest` and the test function when a test has run, before that is reported,
    and the clocks and built-in functions before each test, because a test may replace those itself
    (monkeypatch). It adds the ids of tests that ran with a changed runner to `tampered`, and guards
    the methods of `reporter` as it does its own.
    """

    def __init__(self, tampered: "set[str]", reporter: type) -> None:
        self.tampered = tampered
        self.reporter = reporter
        self.functions: dict[str, Any] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: Any) -> None:
        self.runner = parts_of_class(type(self)) + parts_of_class(self.reporter)
        self.runner += [part for name in RUNNER for part in parts_of_module(name)]
        self.world = [part for name in WORLD for part in parts_of_module(name) if part[1] not in HARMLESS]
        self.tracing = sys.gettrace(), sys.getprofile()
        self.manager = session.config.pluginmanager
        self.plugins = {id(plugin) for plugin in self.manager.get_plugins()}

    def has_foreign_plugin(self) -> bool:
        """Returns True if a plugin was registered by anything but pytest and the tests' own
        conftest.py.
        """
        new = (plugin for plugin in self.manager.get_plugins() if id(plugin) not in self.plugins)
        return any(not str(getattr(plugin, "__file__", "")).endswith("conftest.py") for plugin in new)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        self.functions = {item.nodeid: code_of(item) for item in session.items}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        if not unchanged(self.world):
            self.tampered.add(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.when == "call" and not (
            (sys.gettrace(), sys.getprofile()) == self.tracing
            and code_of(item) is self.functions.get(item.nodeid)
            and not self.has_foreign_plugin()
            and unchanged(self.runner)
        ):
            self.tampered.add(item.nodeid)


class TestSelection:
    """Leaves only tests whose id without parameters is in `only`."""

    def __init__(self, only: "list[str]") -> None:
        self.only = set(only)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: "list[Any]") -> None:
        items[:] = [item for item in items if item.nodeid.partition("[")[0] in self.only]


class Verdicts:
    """Reports the tests named in `tampered` as failed."""

    def __init__(self, tampered: "set[str]") -> None:
        self.tampered = tampered

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        outcome = yield
        if item.nodeid in self.tampered and call.when == "call":
            report = outcome.get_result()
            report.outcome = "failed"
            report.longrepr = "The code under test changed the test runner."


def pytest_configure(config: Any) -> None:
    """Registers the plugins of a published record's run, and restores the environment that loaded them."""
    plan = json.loads(os.environ.pop(PLAN, "null"))
    if plan is None:  # a runner registers `Seal` itself
        return
    folder, file = os.path.split(os.path.abspath(__file__))
    take_out("PYTHONPATH", folder, os.pathsep)
    take_out("PYTEST_ADDOPTS", "-p " + file.partition(".")[0], " ")
    tampered: set[str] = set()
    seal, verdicts = Seal(tampered, Verdicts), Verdicts(tampered)
    config.pluginmanager.register(seal)
    config.pluginmanager.register(verdicts)
    if plan["phases"] is not None:
        with open(os.path.join(folder, "plan.json")) as stream:
            content = json.load(stream)
        os.unlink(stream.name)
        phases = importlib.import_module(plan["phases"])
        config.pluginmanager.register(phases.TestPhases(content, seal, verdicts))
    if plan["only"] is not None:
        config.pluginmanager.register(TestSelection(plan["only"]))


def take_out(variable: str, part: str, separator: str) -> None:
    """Removes a part of an environment variable, so that the code under test finds it as it was."""
    value = os.environ.get(variable, "")
    left = value.replace(separator + part, "").replace(part, "")
    os.environ.pop(variable, None)
    if left:
        os.environ[variable] = left


def code_of(item: Any) -> Any:
    """Returns the code of a collected test's function, or None if it has none."""
    return getattr(getattr(item, "obj", None), "__code__", None)


def parts_of_class(owner: Any) -> "list[Part]":
    """Returns (namespace, name, object, code) of each function and class of a class or module."""
    kinds = (property, classmethod, staticmethod)
    members = [(name, member) for name, member in vars(owner).items() if callable(member) or isinstance(member, kinds)]
    return [(vars(owner), name, member, getattr(member, "__code__", None)) for name, member in members]


def parts_of_module(name: str) -> "list[Part]":
    """Returns the parts of a module and of the classes that it defines."""
    module = sys.modules.get(name)
    if module is None:
        return []
    classes = [member for member in vars(module).values() if isinstance(member, type) and member.__module__ == name]
    return [part for owner in [module] + classes for part in parts_of_class(owner)]


def unchanged(parts: "list[Part]") -> bool:
    """Returns True if all parts are the objects they were, with the same code."""
    return all(
        place.get(name) is member and getattr(member, "__code__", None) is code for place, name, member, code in parts
    )
