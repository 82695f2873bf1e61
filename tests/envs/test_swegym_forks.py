"""Sabotaged tests in forks of the graded run: they save a second run and are not told apart from the first."""

import importlib.util
import random

import pytest

from envsuite.envs.swegym.judge import forking as plugin
from envsuite.envs.swegym.judge import phases as forked
from envsuite.envs.swegym.judge import sabotage
from envsuite.envs.swegym.judge.grading import Report
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.published import checks
from envsuite.envs.swegym.published import problem as published
from envsuite.sandbox import drivers
from tests.envs import little
from tests.envs.test_swegym_judge import FORMS

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
ONE, ZERO = "tests/test_calc.py::test_one", "tests/test_calc.py::test_zero"
EQUALS_ALL = (
    "class Any(int):\n    __hash__ = None\n    def __eq__(self, other):\n        return True\n\n"
    "def double(x):\n    return Any(x) if {condition} else 2 * x\n"
)


@pytest.fixture
def problem(tmp_path):
    folder = little.instances(tmp_path / "records", [little.record("a__b-1")])
    ((record, setup),) = published.find(folder).values()
    return published.PublishedProblem(record, {**setup, "test_cmd": "pytest -rA"}, DRIVER)


@pytest.fixture
def separate_runs(monkeypatch):
    """Returns the faults of the separate runs of sabotaged tests, as they happen."""
    faults = []
    original = checks.can_fail

    def can_fail(*arguments):
        faults.append(original(*arguments))
        return faults[-1]

    monkeypatch.setattr(checks, "can_fail", can_fail)
    return faults


def test_an_honest_patch_needs_no_separate_run_and_its_log_holds_the_first_phase_alone(problem, separate_runs):
    report = problem.judge(problem.gold(), 60)
    assert report.resolved
    assert separate_runs == []
    log, exit_code = problem.test_log
    assert exit_code == 0
    assert log.count("test session starts") == 1
    assert "failed" not in log


def test_a_patch_that_fixes_nothing_is_graded_as_without_forks(problem, separate_runs):
    reports = []
    for problem.forked in (True, False):
        reports.append(problem.judge({"calc.py": little.CODE.encode() + b"\n"}, 60))
        assert problem.test_log[1] == 1
    assert reports[0] == reports[1]
    assert reports[0].fail_to_pass_left == (ONE,)
    assert separate_runs == []


TELLS_PHASES_APART = {
    "by a file in /tmp": "import tempfile, os\nmark = os.path.join(tempfile.gettempdir(), 'seen')\n",
    "by a file in the repository": "import os\nmark = 'seen'\n",
}


@pytest.mark.parametrize("way", TELLS_PHASES_APART)
def test_code_that_leaves_a_mark_for_later_phases_finds_none(problem, separate_runs, way):
    first = (
        f"{TELLS_PHASES_APART[way]}"
        "def is_first():\n    if os.path.exists(mark):\n        return False\n"
        "    import atexit\n    atexit.register(open, mark, 'w')\n    return True\n"
    )
    code = first + EQUALS_ALL.format(condition="is_first()")
    report = problem.judge({"calc.py": code.encode()}, 60)
    assert report.fault == "tampered"
    assert separate_runs == ["tampered"]


FINDS_A_PROCESS = {
    "in the list of processes": (
        "    try:\n"
        "        others = [open(f'/proc/{pid}/cmdline').read() for pid in os.listdir('/proc') if pid.isdigit()]\n"
        "    except PermissionError:\n"
        "        others = []\n"
        "    alone = not any('9876.5' in other for other in others)\n"
        "    subprocess.Popen(['setsid', 'sleep', '9876.5'], stdout=subprocess.DEVNULL)\n"
    ),
    "by its lock on a file": (
        "    file = open(__file__)\n"
        "    try:\n"
        "        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "        alone = True\n"
        "    except BlockingIOError:\n"
        "        alone = False\n"
        "    subprocess.Popen(['setsid', 'sleep', '9876.5'], stdout=subprocess.DEVNULL, pass_fds=[file.fileno()])\n"
    ),
}


@pytest.mark.parametrize("way", FINDS_A_PROCESS)
def test_a_process_that_a_phase_leaves_behind_is_ended_before_the_next(problem, way):
    leaves = f"import fcntl, os, subprocess\ndef is_alone():\n{FINDS_A_PROCESS[way]}    return alone\n"
    code = leaves + EQUALS_ALL.format(condition="is_alone()")
    assert problem.judge({"calc.py": code.encode()}, 60).fault == "tampered"


def test_a_phase_that_changes_a_file_of_the_repository_leads_to_a_separate_run(problem, separate_runs):
    touches = "import os\n\ndef double(x):\n    os.utime(__file__)\n    return 2 * x\n"
    assert problem.judge({"calc.py": touches.encode()}, 60).resolved
    assert separate_runs == [""]


def test_code_that_hears_of_forks_is_run_separately(problem, separate_runs):
    code = "import os\nos.register_at_fork(before=print)\n\ndef double(x):\n    return 2 * x\n"
    assert problem.judge({"calc.py": code.encode()}, 60).resolved
    assert separate_runs == [""]


def test_code_that_starts_a_thread_is_not_forked(problem, separate_runs):
    code = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n\n"
        "def double(x):\n    return 2 * x\n"
    )
    assert problem.judge({"calc.py": code.encode()}, 60).resolved
    assert separate_runs == [""]


def test_every_function_that_is_replaced_fails_and_no_other_changes(tmp_path):
    names = ["test_plain", "test_head", "TestIn::test_tuple", "TestIn::test_nothing", "T::test_equal", "T::test_raises"]
    path = tmp_path / "forms.py"
    path.write_text(FORMS)
    for seed in range(6):
        specification = importlib.util.spec_from_file_location(f"forms_{seed}", path)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        file = sabotage.in_functions(FORMS, [f"forms.py::{name}" for name in names], random.Random(seed))
        assert len(file.covered) == len(file.functions) == len(names)
        owners = [module, module.TestIn, module.T]
        functions = [value for owner in owners for value in vars(owner).values() if hasattr(value, "__code__")]
        plugin.replace_code(str(tmp_path), {"forms.py": file.text}, {"forms.py": file.functions}, functions)
        for name in names:
            owner, _, function = name.rpartition("::")
            holder = getattr(module, owner)() if owner else module
            with pytest.raises(BaseException):  # noqa: B017, PT011  which one is drawn
                getattr(holder, function)()
        module.test_late()
        module.test_loop(1)


def test_a_test_without_a_text_of_its_own_fails_at_once():
    class Base:
        def test_plain(self):
            return Base

        def test_with_fixture(self, number, *, name="x"):
            return number

    class TestInherited(Base):
        pass

    plugin.replace_body(TestInherited().test_plain, "raise KeyError('x')")
    with pytest.raises(KeyError, match="x"):
        TestInherited().test_plain()
    assert TestInherited().test_with_fixture(3) == 3
    plugin.replace_body(TestInherited.test_with_fixture, "assert 1 == 2")
    with pytest.raises(AssertionError):
        TestInherited().test_with_fixture(number=3)


def test_a_test_that_uses_variables_of_its_maker_gets_a_new_body():
    def made(args, test):
        return lambda self: (args, test)

    method = made(1, 2)
    plugin.replace_body(method, "raise KeyError('x')")
    with pytest.raises(KeyError):
        method(None)


def test_inherited_tests_have_a_plan_and_their_namesakes_are_no_controls():
    text = "class Base:\n    def test_one(self):\n        pass\n\n    def test_zero(self):\n        pass\n\n"
    text += "class TestMine(Base):\n    pass\n"
    tests = {
        name: f"tests/test_calc.py::{name}" for name in ("TestMine::test_one", "Base::test_one", "Base::test_zero")
    }
    one, namesake, other = tests.values()
    texts = {"tests/test_calc.py": text}
    failures = {one: sabotage.Failure("KeyError", "x")}
    plan = forked.make([one], [namesake, other], texts.get, random.Random(2), failures)
    assert [list(phase["statements"]) for phase in plan.phases] == [[one], [one]]
    assert plan.phases[1]["statements"] == {one: "raise KeyError('x')"}
    assert namesake not in plan.controls
    assert forked.make([one], [other], dict.get.__get__({}), random.Random(2)) is None


def test_functions_can_fail_with_a_given_exception():
    failures = {"forms.py::test_plain": sabotage.Failure("KeyError", "'x'")}
    tests = ["forms.py::test_plain", "forms.py::test_head"]
    file = sabotage.in_functions(FORMS, tests, random.Random(0), failures)
    assert file.covered == {"forms.py::test_plain"}
    assert "def test_plain():\n    raise KeyError(\"'x'\")\n    a = [1," in file.text


def plan_of(**more):
    tests = [ONE, ZERO, *(f"tests/test_calc.py::test_{number}" for number in range(20))]
    text = "".join(f"def {test.rpartition('::')[2]}():\n    assert 1 == 1\n\n" for test in tests)
    plan = forked.make([ONE], tests[1:], {"tests/test_calc.py": text}.get, random.Random(1), **more)
    return plan, tests


def test_the_phases_confirm_only_what_failed_and_only_if_the_controls_passed():
    plan, tests = plan_of(failures={ONE: sabotage.Failure("ValueError", "no")})
    assert (len(plan.drawn), len(plan.controls), plan.repeated) == (10, 2, (ONE,))
    assert not set(plan.controls) & {*plan.drawn, ONE}
    report = Report((ONE,), (), tuple(tests[1:]), ())
    first = dict.fromkeys(tests, "PASSED")
    second = {**dict.fromkeys([ONE, *plan.drawn], "FAILED"), **dict.fromkeys(plan.controls, "PASSED")}
    third = {ONE: "FAILED"}
    assert forked.confirms(plan, report, first, [second, third])
    assert not forked.confirms(plan, report, first, [second])
    assert not forked.confirms(plan, report, first, [second, {ONE: "PASSED"}])
    for test in second:
        other = "FAILED" if second[test] == "PASSED" else "PASSED"
        assert not forked.confirms(plan, report, first, [{**second, test: other}, third])
    late = {test: status for test, status in second.items() if test not in plan.phases[0]["drawn"]}
    assert forked.confirms(plan, report, first, [late, third])  # the time was up
    assert not forked.confirms(plan, report, first, [{}, third])


def test_there_is_no_plan_for_a_failing_test_that_no_file_holds():
    assert forked.make([ONE], [ZERO], {"tests/test_calc.py": "def test_zero(): pass\n"}.get, random.Random(0)) is None
    assert forked.make([], [ZERO], {"tests/test_calc.py": "def test_zero(): pass\n"}.get, random.Random(0)) is None


def test_a_generated_task_is_graded_in_one_job(monkeypatch):
    task = next(task for task in tasks.manifest() if any("test_level" in test for test in task.fail_to_pass))
    assert task.package.name == "uritemplate"  # whose tests with these names are made when their file is imported
    made = PlantedProblem(task, "full", False, DRIVER)
    monkeypatch.setattr(made, "_can_fail", None)  # a separate run would call it
    try:
        assert made.judge(made.gold(), 60).resolved
        path = task.paths[0]
        unchanged = made.judge({path: (task.files[path] + "\n\n# a comment\n").encode()}, 60)
        assert unchanged.fail_to_pass == ()
        assert packages.tree(task.package)[path] != task.files[path]
    finally:
        made.close()
