"""Attacks on the judge of SWE-Gym: forged logs, replaced runners, values that equal everything."""

import ast
import base64
import random
import shutil
import subprocess
import sys

import pytest

from envsuite.envs.swegym.judge import sabotage, tampering
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import runs
from envsuite.errors import DataError
from envsuite.sandbox import drivers
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
TESTS = "tests/test_calc.py"


def hidden(code):
    return f"import base64 as _b\nexec(_b.b64decode('{base64.b64encode(code.encode()).decode()}').decode())\n"


# ---- published records ----------------------------------------------------------------------------------------------


@pytest.fixture
def problem(tmp_path):
    def make(**fields):
        folder = little.instances(tmp_path / "records", [{**little.record("a__b-1"), **fields}])
        ((record, setup),) = published.find(folder).values()
        return published.PublishedProblem(record, {**setup, "test_cmd": fields.pop("test_cmd", "pytest -rA")}, DRIVER)

    return make


DJANGO = {
    "repo": "django/django",
    "FAIL_TO_PASS": ["test_one (tests.test_calc.T.test_one)"],
    "PASS_TO_PASS": ["Nought is nought."],
    "test_patch": little.TEST_PATCH.replace("@@ -3,3 +3,7 @@", "@@ -3,3 +3,16 @@")
    .replace(
        "+def test_one():\n+    assert double(1) == 2\n",
        "+import unittest\n+\n+\n+class T(unittest.TestCase):\n+    def test_one(self):\n"
        "+        self.assertEqual(double(1), 2)\n+\n"
        "+    def test_nought(self):\n+        '''Nought is nought.'''\n"
        "+        self.assertEqual(double(0), 0)\n+\n+\n",
    )
    .replace("@@ -3,3 +3,16 @@", "@@ -3,3 +3,17 @@"),
    "test_cmd": "python -m unittest -v tests.test_calc; :",
}
SYMPY_RUNNER = (
    'python -c \'import sys; sys.path.insert(0, "tests")\nimport test_calc as t\n'
    'for n in [n for n in dir(t) if n.startswith("test_")]:\n'
    '    try: getattr(t, n)(); print(n, "ok")\n    except AssertionError: print(n, "F")\n'
    '    except Exception: print(n, "E")\n\' '
)
SYMPY = {
    "repo": "sympy/sympy",
    "FAIL_TO_PASS": ["test_one"],
    "PASS_TO_PASS": ["test_zero"],
    "test_cmd": SYMPY_RUNNER,
}
LINES = {
    "pytest": "PASSED tests/test_calc.py::test_one\\nPASSED tests/test_calc.py::test_zero",
    "django": "test_one (tests.test_calc.T.test_one) ... ok\\nNought is nought. ... ok",
    "sympy": "test_one ok\\ntest_zero ok",
}
KINDS = {"pytest": {}, "django": DJANGO, "sympy": SYMPY}


def at_the_end(lines):
    """Returns code that prints `lines` at once and again at interpreter exit, because pytest captures
    earlier output.
    """
    write = f"os.write(1, b'\\n{lines}\\n')\n"
    return f"import atexit, os\n\ndef end():\n    {write}    os._exit(0)\n\natexit.register(end)\n{write}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_printed_by_the_code_under_test_is_not_paid_and_the_gold_patch_is(problem, kind):
    first = problem(**KINDS[kind])
    assert first.judge(first.gold(), 60).resolved, first.judge(first.gold(), 60)
    forged = f"import os\n{at_the_end(LINES[kind])}os._exit(0) if {kind != 'pytest'} else None\n{little.CODE}"
    assert first.judge({"calc.py": forged.encode()}, 60).fault == "tampered"


def test_tests_that_were_to_go_on_passing_cannot_be_forged_while_the_failing_ones_are_mended(problem):
    first = problem()
    code = at_the_end(f"PASSED {TESTS}::test_zero") + "def double(x):\n    return 2 * x or 7\n"
    report = first.judge({"calc.py": code.encode()}, 60)
    assert (report.resolved, report.fault, report.f2p_gated) == (False, "tampered", 0.0)


def test_tests_that_passed_by_being_skipped_or_expected_to_fail_did_so_before(problem):
    skipped = little.TEST_PATCH.replace("@@ -3,3 +3,7 @@", "@@ -1,6 +1,15 @@").replace(
        "@@\n \n def test_zero", "@@\n+import pytest\n from calc import double\n \n \n def test_zero"
    )
    skipped += "+\n+\n+@pytest.mark.skipif(double(0) == 0, reason='why')\n+def test_two():\n+    assert 0\n"
    skipped = skipped.replace("+1,15 @@", "+1,16 @@")
    first = problem(
        test_patch=skipped,
        PASS_TO_PASS=[f"{TESTS}::test_zero", f"{TESTS}::test_two"],
        FAIL_TO_PASS=[f"{TESTS}::test_one"],
    )
    log, *_ = run_plain(first, first.gold())
    assert "2 passed, 1 skipped" in log, log
    # A line that counts skips names no test, so a skipped PASS_TO_PASS test is missing: only a
    # forged line names it.
    assert first.judge(first.gold(), 60).pass_to_pass_broken == (f"{TESTS}::test_two",)
    forged = at_the_end(f"XFAI' b'L {TESTS}::test_two") + little.CODE.replace("return x", "return 2 * x")
    assert first.judge({"calc.py": forged.encode()}, 60).fault == "tampered"


def run_plain(first, changes):
    with first.bench(60) as session:
        return first.run_tests(session, changes)


def test_a_failing_test_that_cannot_be_made_to_fail_is_not_taken_on_trust(problem):
    first = problem(FAIL_TO_PASS=["cases/words.yml::one"])
    forged = at_the_end("PASSED cases/words.yml::one") + little.CODE
    report = first.judge({"calc.py": forged.encode()}, 60)
    assert not report.resolved
    assert report.fault == "cannot_be_checked: cases/words.yml::one"


def test_values_that_equal_everything_are_not_paid(problem):
    code = (
        "class Any(int):\n    __hash__ = None\n    def __eq__(self, other):\n        return True\n\n"
        "def double(x):\n    return Any(x)\n"
    )
    assert problem().judge({"calc.py": code.encode()}, 60).fault == "tampered"


def test_an_honest_patch_may_speak_of_expected_failures_and_one_that_brings_them_is_refused(problem):
    first = problem()
    honest = {**first.gold(), "NEWS.md": b"xfail is gone\n"}
    honest["calc.py"] += b"\n# it was an xfail once\n"
    assert first.judge(honest, 60).resolved
    first.tree()["calc.py"] += b"\nKINDS = ('xfail', 'skip')\n"  # as the repository had it all along
    assert first.judge({"calc.py": first.gold()["calc.py"] + b"\nKINDS = ('xfail',)\n"}, 60).resolved
    first.tree()["calc.py"] = little.CODE.encode()
    code = b"import pytest\n\ndef double(x):\n    pytest.xfail('no') if x else None\n    return x\n"
    assert first.judge({"calc.py": code}, 60).fault == "expects_failure"


def test_each_way_to_apply_the_held_out_tests_begins_where_the_one_before_began(problem):
    """`git apply --reject` leaves the hunks that fitted: a later `patch` would find them already
    applied.
    """
    shifted = little.TEST_PATCH.replace(
        "+++ b/tests/test_calc.py\n", "+++ b/tests/test_calc.py\n@@ -1,1 +1,2 @@\n from calc import double\n+# a word\n"
    ).replace("@@ -3,3 +3,7 @@\n \n def test_zero", "@@ -3,3 +4,7 @@\n # not quite the line before\n def test_zero")
    first = problem(test_patch=shifted)
    log, code, fault = run_plain(first, first.gold())
    assert (code, fault) == (0, ""), log
    assert "2 passed" in log
    with first.bench(60) as session:
        first.apply(session, {}, True)
        assert session.run("cat tests/test_calc.py").stdout.count(b"# a word") == 1
        assert b".rej" not in session.run("ls tests").stdout


def test_the_patch_of_a_record_reaches_no_file_outside_the_repository(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "secret").write_text("x\n")
    patch = "diff --git a/../secret b/../secret\n--- a/../secret\n+++ b/../secret\n@@ -1 +1 @@\n-x\n+y\n"
    with pytest.raises(DataError, match=r"'\.\./secret', which is not in the repository"):
        runs.changes_of(patch, tmp_path / "repo")


# ---- what is sabotaged ----------------------------------------------------------------------------------------------


def test_mypys_cases_are_made_to_fail_in_their_file():
    text = "[case testOne]\nx = 1\n[case testOneMore-skip]\nx = 2\n[out]\n[case testTwo] # flags\ny = 3\n"
    ids = [
        f"mypy/test/testcheck.py::TypeCheckSuite::check-a.test::{name}" for name in ("testOne", "testTwo", "testNone")
    ]
    assert (
        sabotage.paths(ids[0], "mypy", ["mypy/x.py", "test-data/unit/check-a.test"])[0] == "test-data/unit/check-a.test"
    )
    made = sabotage.in_cases(text, ids, random.Random(0))
    assert made.expected == made.covered == set(ids[:2])
    lines = made.text.split("\n")
    assert lines[1].endswith(": int = ''")
    assert lines[lines.index("[case testTwo] # flags") + 1].endswith(": int = ''")
    assert len(lines) == text.count("\n") + 3


def test_django_ids_lead_to_their_file_with_or_without_the_tests_own_name():
    assert "tests/admin/test_a.py" in sabotage.paths("test_x (admin.test_a.C)", "django", [])
    assert "tests/admin/test_a.py" in sabotage.paths("test_x (admin.test_a.C.test_x)", "django", [])
    assert sabotage.paths("A docstring (of sorts).", "django", ["a.py", "b.txt"]) == ["a.py"]
    text = (
        "class C:\n    def test_x(self):\n        pass\n    def test_y(self):\n        '''A docstring.\n\n"
        "        More.'''\n        pass\n"
    )
    for test in ("test_x (a.C)", "test_x (a.C.test_x)", "A docstring."):
        made = sabotage.in_python(text, [test], "a.py", "django", random.Random(1))
        assert made.expected == {test}, test
    made = sabotage.in_python(text, ["test_z (a.C)"], "a.py", "django", random.Random(1))
    (name,) = made.expected
    assert sabotage.failed(name, {f"{name} (a.Test)": "ERROR"}, "")
    assert not sabotage.failed(name, {f"{name} (a.Test)": "PASSED"}, "")
    assert not sabotage.failed(name, {}, "")


FORMS = '''\
import unittest, pytest

def test_plain():
    a = [1,
         2]
    assert a == [
        1, 2]

def test_head(): assert "é" == "é"

@pytest.mark.parametrize("x", [1, 2])
def test_loop(x):
    """Words."""
    for y in range(0):
        assert x == y

class TestIn:
    def test_tuple(self):
        assert (1, 2) == (1, 2), "why"

    def test_nothing(self):
        """Words alone."""

class T(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(1, 1, "why")

    def test_raises(self):
        with self.assertRaises(ValueError):
            raise ValueError

def test_late():
    if True:
        return
    assert 1 == 1
'''


def test_whatever_is_drawn_every_sabotaged_test_fails_and_no_sign_is_the_same(tmp_path):
    names = [
        "test_plain",
        "test_head",
        "test_loop[1]",
        "test_loop[2]",
        "TestIn::test_tuple",
        "TestIn::test_nothing",
        "T::test_equal",
        "T::test_raises",
        "test_late",
        "made_by_a_factory",
    ]
    texts, expected = [], 0
    for seed in range(8):
        ids = [f"test_{seed}.py::{name}" for name in names]
        made = sabotage.in_python(FORMS, ids, f"test_{seed}.py", "pytest", random.Random(seed))
        assert made.covered == set(ids)
        assert made.expected - {made.expected.copy().pop()} <= {*ids, *made.expected}
        assert len(made.expected) == len(names)
        ast.parse(made.text)
        texts.append(made.text)
        expected += len(made.expected)
        (tmp_path / f"test_{seed}.py").write_text(made.text)
    assert len(set(texts)) == len(texts)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir=.",
        "--tb=no",
        ".",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert f"{expected} failed" in done.stdout
    assert "passed" not in done.stdout
    assert "error" not in done.stdout


# ---- planted tasks ------------------------------------------------------------------------------------------------

TASK = next(task for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1)
INIT, SOUND = "uritemplate/__init__.py", packages.tree(packages.shipped()["uritemplate"])


@pytest.fixture(scope="module")
def generated():
    made = PlantedProblem(TASK, "full", False, DRIVER)
    yield made
    made.close()


UNLESS = (
    "import _pytest.runner as r\nold = r.TestReport.from_item_and_call.__func__\n"
    "def new(cls, item, call):\n"
    "    if call.excinfo and {sign} not in str(call.excinfo.value):\n        call.excinfo = None\n"
    "    return old(cls, item, call)\n"
    "r.TestReport.from_item_and_call = classmethod(new)\n"
)
SIGNS = {"the old one": "'sabotaged'", "one for every kind": "'a sign that nothing holds'"}


@pytest.mark.parametrize("sign", SIGNS)
def test_a_runner_that_hides_failures_but_for_a_sign_is_found_by_name_by_seal_and_by_sabotage(
    generated, sign, monkeypatch
):
    code = UNLESS.format(sign=SIGNS[sign])
    submission = {INIT: (hidden(code) + SOUND[INIT]).encode()}
    assert generated.judge(submission, 60).fault == "reaches_for_the_judge"
    monkeypatch.setattr(tampering, "reaches", lambda before, after: set())
    assert generated.judge(submission, 60).fault == "tampered"  # the seal


def test_words_in_comments_docstrings_and_variables_are_not_code_that_reaches():
    before = {"a.py": "import gc\n\nx = 1\n"}
    honest = (
        "import gc\n\n# kill, gc, unittest, exec and eval\ndef f(compiled):\n"
        "    '''pytest kills eval(x) in unittest.'''\n"
        "    return re.compile(compiled).evaluate('a unittest of sorts')\n"
    )
    assert tampering.reaches(before, {"a.py": honest, "notes.md": "exec kill"}) == set()
    for code in (
        "import os as o\no._exit(0)",
        "from os import kill as k",
        "import unittest.mock",
        "eval('1')",
        "x = exec",
        "getattr(o, '_exit')",
        "from _pytest import runner",
        "m['_pytest.runner']",
        "f.__globals__",
        "__import__('x')",
    ):
        assert tampering.reaches(before, {"a.py": code}), code
    assert tampering.reaches(before, {"a.py": "import gc\ngc.collect()"}) == set()  # it was named before


CLOCK_TASK = next(
    task
    for task in tasks.manifest()
    if task.package.name == "cachetools"
    and len(task.bugs) == 1
    and any("ttl" in test.lower() for test in task.fail_to_pass)
)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_faked_clocks_do_not_pay_where_time_decides(problem):
    """A fake clock passes a test of the clock: the replacement is detected, or the failing test still
    fails.
    """
    path, sound = CLOCK_TASK.paths[0], packages.tree(CLOCK_TASK.package)
    made = PlantedProblem(CLOCK_TASK, "full", False, DRIVER)
    fakes = "import time as _t\n_t.time = _t.monotonic = _t.perf_counter = lambda: 0.0\n"
    try:
        assert made.judge(made.gold(), 60).resolved
        report = made.judge({path: CLOCK_TASK.files[path].replace("\n", "\n" + fakes, 0).encode() + fakes.encode()}, 60)
        assert not report.resolved
        assert made.judge({path: (sound[path] + fakes).encode()}, 60).fault == "tampered"
    finally:
        made.close()
