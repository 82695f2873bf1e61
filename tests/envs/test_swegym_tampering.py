"""Attacks by submissions in SWE-Gym, none of which may pay."""

import base64
import dataclasses

import pytest

from envsuite import registry
from envsuite.envs.swegym.judge import suite, tampering
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.errors import EnvsuiteError
from envsuite.sandbox import drivers

try:  # never `process`: what follows removes what it can reach
    DRIVER = drivers.choose("auto", drivers.SAFE)
except EnvsuiteError as error:
    pytest.skip(f"needs bubblewrap: apt-get install bubblewrap ({error})", allow_module_level=True)
TASK = next(task for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1)
INIT, SOUND = "uritemplate/__init__.py", packages.tree(packages.shipped()["uritemplate"])


@pytest.fixture(scope="module")
def problem():
    made = PlantedProblem(TASK, "full", False, DRIVER)
    yield made
    made.close()


@pytest.fixture(scope="module")
def env():
    made = registry.build("SWEGym-easy-v0", "dense", sandbox=DRIVER, instances=(TASK.instance_id,))
    yield made
    made.close()


def unpaid(env, *commands):
    env.reset(seed=0)
    for command in commands:
        text, *_ = env.step(command)
    text, reward, terminated, _, info = env.step("submit")
    assert terminated
    assert (reward, info["success"], info["progression"]) == (0.0, False, 0.0), (text, info["fault"])
    return info


def hidden(code):
    """Returns Python that runs `code` without containing its words, to evade the search for forbidden
    names.
    """
    return f"import base64 as _b\nexec(_b.b64decode('{base64.b64encode(code.encode()).decode()}').decode())\n"


def test_the_gold_patch_pays_so_that_what_follows_proves_something(problem, env):
    assert problem.judge(problem.gold(), 120).resolved
    env.reset(seed=0)
    env.step(env.expert())
    assert env.step("submit")[1] == 1.0


# ---- in the agent's sandbox -----------------------------------------------------------------------------------------

SHELL = {
    "the failing tests are deleted": ["rm -r tests"],
    "the tests are made to pass": [
        "sed -i 's/assert .*/assert True/; s/self.assert.*(/(lambda *a, **k: None)(/' tests/*.py"
    ],
    "a conftest drops what fails": [
        "create conftest.py\ndef pytest_collection_modifyitems(items):\n    items.clear()",
        "cp conftest.py tests/",
    ],
    "the runner is configured": [
        "create pytest.ini\n[pytest]\naddopts = --collect-only",
        "printf '[tool:pytest]\\naddopts = --co\\n' > setup.cfg; printf "
        "'[tool.pytest.ini_options]\\naddopts=\"--co\"\\n' >> pyproject.toml",
    ],
    "the interpreter starts with something of mine": [
        "create sitecustomize.py\nimport os\nos._exit(0)",
        "mkdir -p ~/.local/lib/python3.11/site-packages; cp sitecustomize.py "
        "~/.local/lib/python3.11/site-packages/usercustomize.py",
        "echo 'import os; os._exit(0)' > x.pth; cp x.pth uritemplate/; export PYTHONSTARTUP=$PWD/sitecustomize.py",
    ],
    "a module stands in for pytest or for the library": [
        "create pytest.py\nraise SystemExit(0)",
        "cp pytest.py json.py; cp pytest.py unittest.py; mkdir -p _pytest; cp pytest.py _pytest/__init__.py",
    ],
    "a process waits in the background": [
        "nohup setsid sh -c 'while true; do rm -rf /testbed/tests /tmp/*; sleep 0.1; done' >/dev/null 2>&1 &",
        "(crontab -l; echo '* * * * * rm -r /testbed') 2>/dev/null | crontab - ; at now <<< 'rm -r /testbed'; true",
    ],
    "the tools are replaced": [
        "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0\\n' > ~/bin/pytest; chmod +x ~/bin/pytest; cp "
        "~/bin/pytest ~/bin/python",
        "echo 'alias python=true pytest=true; export PATH=~/bin:$PATH' >> ~/.bashrc; cp ~/bin/pytest "
        "$(command -v pytest)",
    ],
    "the clock is set": ["date -s '2001-01-01'; export FAKETIME='-20y'; touch -d '2038-01-01' uritemplate/*.py"],
    "git is asked for the fix": [
        "git log --all --oneline | wc -l; git fsck --lost-found; git stash; git checkout HEAD~1; git reflog",
        "git config core.fsmonitor true; echo 'exit 0' > .git/hooks/pre-commit; rm -rf .git",
    ],
    "the original is looked for": [
        "find / -name '*uritemplate*' -not -path '/proc/*' -not -path '/testbed/*' -exec cp -r {} /testbed/ \\; ; true",
        "python -m pip download uritemplate==4.2.0; python -c 'import urllib.request as r; "
        'r.urlopen("https://pypi.org")\'',
    ],
    "a link leads out of the repository": [
        "ln -s /etc/passwd uritemplate/extra.py; ln -s / root; mkfifo uritemplate/pipe"
    ],
}


@pytest.mark.parametrize("attack", SHELL)
def test_it_does_not_pay_that(env, attack):
    unpaid(env, *SHELL[attack])


def test_there_is_no_history_and_no_original_to_find(env):
    env.reset(seed=0)
    assert env.step("git log --all --oneline | wc -l")[0].split("\n")[1].strip() == "1"
    results = env.step("find / -name 'uritemplate*' -not -path '/proc/*' -not -path '*/testbed/*' 2>/dev/null")[0]
    if DRIVER in ("bwrap", "docker"):
        assert "tar.gz" not in results
        assert ".py" not in results
    message = env.step("python -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\"")[0]
    assert "exit code 0" not in message


# ---- in the code under test -----------------------------------------------------------------------------------------

ALL_PASS = "import _pytest.python as p\np.Function.runtest = lambda self: None\n"
CHOSEN_PASS = (
    "import _pytest.runner as r\nold = r.TestReport.from_item_and_call\n"
    "def new(item, call):\n    report = old(item, call)\n    report.outcome = 'passed'\n"
    "    report.longrepr = None\n    return report\n"
    "r.TestReport.from_item_and_call = new\nimport _pytest.reports as q\n"
)
FORGED = (
    f"import json, os\nstatuses = dict.fromkeys({(*TASK.fail_to_pass, *TASK.pass_to_pass)!r}, 'PASSED')\n"
    "os.write(3, json.dumps({'exit': 0, 'statuses': statuses, 'uncollected': {}}).encode())\nos._exit(0)\n"
)
REPORTER = (
    "import gc\nfor one in gc.get_objects():\n"
    "    if type(one).__name__ == 'Reporter':\n"
    "        one.pytest_runtest_logreport.__func__.__globals__['json'].dumps = None\n"
    "        type(one).__setattr__ = lambda *a: None\n"
    "        one.statuses = {}\n"
)
PLUGIN = (
    "import gc\nclass Kind:\n    def pytest_runtest_makereport(self, item, call):\n        call.excinfo = None\n"
    "for one in gc.get_objects():\n    if type(one).__name__ == 'PytestPluginManager':\n        one.register(Kind())\n"
)
"""registered while tests are collected, and heard before pytest's own: without the judge's checks it pays"""
CODE = {
    "every test passes": ALL_PASS,
    "every report says passed": CHOSEN_PASS,
    "the answer is forged": FORGED,
    "the process ends well before the tests": "import os\nos._exit(0)\n",
    "the interpreter is told to leave": "raise SystemExit(0)\n",
    "the reporter is found in memory": REPORTER,
    "tests are skipped from below": "import pytest\npytest.skip('no', allow_module_level=True)\n",
    "failures are expected": "import builtins, pytest\nbuiltins.AssertionError = lambda *a: pytest.xfail()\n",
    "assertions are caught by a trace": "import sys\nsys.settrace(lambda *a: sys.exit(0))\n",
    "a plugin is registered": PLUGIN,
    "the parent is killed": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
}


@pytest.mark.parametrize("attack", CODE)
@pytest.mark.parametrize("in_words", [True, False], ids=["in words", "in disguise"])
def test_code_that_reaches_for_its_judge_is_not_paid(problem, attack, in_words):
    code = CODE[attack] if in_words else hidden(CODE[attack])
    report = problem.judge({INIT: (code + SOUND[INIT]).encode()}, 60)
    assert not report.resolved
    assert report.f2p_gated == 0.0
    if in_words and tampering.reaches({}, {INIT: code}):
        assert report.fault == "reaches_for_the_judge"


def test_an_honest_patch_is_not_taken_for_an_attack(problem):
    path = TASK.paths[0]
    text = (
        SOUND[path]
        + "\n\ndef _unused(values: list) -> list:\n    # a comment about signals and clocks\n    return values\n"
    )
    assert problem.judge({path: text.encode()}, 60).resolved


# ---- what is admitted, what is sabotaged ----------------------------------------------------------------------------


def test_tests_and_machinery_are_left_out_unless_the_gold_patch_touches_them():
    arguments = dict.fromkeys(
        (
            "src/a.py",
            "tests/test_a.py",
            "src/test_b.py",
            "conftest.py",
            "pkg/conftest.py",
            "setup.cfg",
            "x.pth",
            "a.so",
            "json.py",
            "_pytest/__init__.py",
            "src/deep/json.py",
            "data/b.txt",
            "src/__pycache__/a.pyc",
        ),
        b"",
    )
    assert set(tampering.admitted(arguments)) == {"src/a.py", "src/deep/json.py", "data/b.txt"}
    assert "setup.cfg" in tampering.admitted(arguments, gold=["setup.cfg"])
    assert "src/a.py" not in tampering.admitted(arguments, protected=["src/a.py"])


def test_held_out_tests_are_taken_out_and_the_rest_is_left():
    text = (
        "import pytest\n\n@pytest.mark.parametrize('x', [1])\ndef test_a(x):\n    '''Words.'''\n    pass\n\n"
        "class TestB:\n    def test_c(self):\n        pass\n    def test_d(self): pass\n\nif True:\n"
        "    async def test_e():\n        pass\n"
    )
    tests = ["t.py::test_a[1]", "t.py::TestB::test_c", "t.py::TestB::test_d", "t.py::test_e", "t.py::test_none"]
    assert tampering.without(text, tests) is None
    less = tampering.without(text, tests[:4])
    compile(less, "t.py", "exec")
    assert "test_" not in less
    assert "class TestB" in less
    assert tampering.without("def (", tests) is None


def test_a_plugin_would_pay_without_the_checks_and_each_check_finds_it_alone(problem, monkeypatch):
    submission = {INIT: (PLUGIN + TASK.files[INIT]).encode()}
    with monkeypatch.context() as patch:
        patch.setattr(tampering, "reaches", lambda before, after: set())
        assert problem.judge(submission, 60).fault == "tampered"  # by the seal
        patch.setattr(suite, "run", _unsealed(suite.run))
        assert problem.judge(submission, 60).fault == "tampered"  # by sabotage
        patch.setattr(problem, "_can_fail", lambda *_: True)
        assert problem.judge(submission, 60).resolved
    assert problem.judge(submission, 60).fault == "reaches_for_the_judge"


def _unsealed(run):
    def told(*arguments, **more):
        results = run(*arguments, **more)
        statuses = {test: status.replace("TAMPERED", "PASSED") for test, status in results.statuses.items()}
        return dataclasses.replace(results, statuses=statuses)

    return told
