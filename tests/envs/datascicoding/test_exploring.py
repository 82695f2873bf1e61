"""DataSciCoding: exploring turns, in which code runs in an interpreter that keeps its state."""

import pytest

from envsuite import registry
from envsuite.envs.datascicoding import exploring
from envsuite.envs.datascicoding.replies import cell, submitted
from envsuite.errors import UsageError
from envsuite.sandbox import DRIVERS
from envsuite.tools import call_of
from harness.play import play
from harness.types import episode
from tests.envs.datascicoding.programs import STUMP
from tests.sandbox.conftest import working

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")

PROGRAM = "def build_model(x, y): return 1"


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in DRIVERS if name != "landlock"]
"""drivers of `make sandbox-proof`; `tests/sandbox/test_dialogue.py` tries them all in `make test`"""


@pytest.fixture(scope="module", params=["landlock", *SLOW])
def driver(request):
    return working(request.param)


@pytest.fixture(scope="module")
def warm(driver):
    env = registry.build("DataSciCoding-explore-v0", "dense", sandbox=driver, dataset=("iris",), splits=2)
    yield env
    env.close()


@pytest.fixture
def env(warm):
    warm.reset(seed=0)
    return warm


def shown(env, code: str) -> str:
    """Runs code in an exploring turn; returns its output."""
    text, reward, terminated, truncated, _ = env.step(f"```python\n{code}\n```")
    assert (reward, terminated, truncated) == (0.0, False, False)
    output, _, left = text.rpartition("\n\n")
    assert left.startswith("Exploring turns left: ")
    return output


def test_the_interpreter_keeps_its_state_and_shows_prints_values_and_tracebacks(env):
    assert shown(env, "print(x_train.shape)\na = len(y_train)\na + 1") == "(47, 4)\n48"
    assert shown(env, "import os\ndef f(x): return x / 0\na") == "47"
    text = shown(env, "print('before')\nf(a)")
    assert text.startswith("before\nTraceback")
    assert 'File "<turn 3>", line 2' in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert shown(env, "def f(:").endswith("SyntaxError: invalid syntax")
    assert shown(env, "a = 2") == "(no output)"


def test_a_new_episode_starts_a_new_interpreter(env):
    shown(env, "mine = 1")
    env.reset(seed=0)
    assert "NameError" in shown(env, "mine")


LOST = {
    "import os\nos._exit(3)": "The interpreter ended (exit status 3).",
    "import ctypes\nctypes.string_at(0)": "The interpreter ended (signal 11).",
    "raise SystemExit": "The interpreter ended (exit status 1).",
    "while True: print('x' * 100000)": "The code printed without end.",
}


def test_an_interpreter_that_ends_is_told_and_a_new_one_starts_without_costing_an_attempt(env):
    for code, reason in LOST.items():
        shown(env, "mine = 1")
        text = shown(env, code)
        assert text.splitlines()[-1] == f"{reason} A new interpreter starts: all variables are lost."
    assert "NameError" in shown(env, "mine")
    *_, info = env.step(env.expert())
    assert info["success"]
    assert info["metrics"]["attempts"] == 1
    assert info["metrics"]["explored"] == 2 * len(LOST) + 1


def test_a_turn_that_takes_too_long_ends_the_interpreter(driver):
    env = registry.build("DataSciCoding-explore-v0", sandbox=driver, dataset=("iris",), explore_seconds=0.5)
    env.reset(seed=0)
    text = shown(env, "import time\nwhile True: time.sleep(0.01)")
    assert text == "The code took too long. A new interpreter starts: all variables are lost."
    env.close()


def test_no_row_of_the_holdout_and_no_row_of_another_split_is_in_the_interpreter(env):
    held = {tuple(row) for row in env.game.held_out()[0].round(4).to_numpy().tolist()}
    rows = {tuple(row) for row in eval(shown(env, "x_train.round(4).to_numpy().tolist()"))}
    x_train, y_train, _, _ = env.game.splits(1)[0]
    assert rows == {tuple(row) for row in x_train.round(4).to_numpy().tolist()}
    assert not rows & held
    assert eval(shown(env, "y_train.tolist()")) == y_train.tolist()
    assert (
        shown(env, "[len(v) for v in list(globals().values()) if isinstance(v, (pd.DataFrame, pd.Series, np.ndarray))]")
        == "[47, 47]"
    )


def test_long_output_keeps_its_ends_and_odd_characters_are_removed(env):
    text = shown(env, "print('a' * 5000 + 'b' * 5000)")
    assert len(text) < 2_010
    assert text.startswith("aaa") and text.endswith("bbb") and "\n[...]\n" in text
    assert shown(env, "print('\\x1b[31m', object())") == " [31m <object object at 0x...>"


def test_code_counts_as_submitted_once_the_turns_are_used_up(driver):
    env = registry.build("DataSciCoding-explore-v0", "dense", sandbox=driver, dataset=("iris",), explore=1, splits=1)
    env.reset(seed=0)
    assert env.step("```python\n1\n```")[0].endswith("so that every further program is submitted.")
    text, reward, *_ = env.step("```python\n1\n```")
    assert reward == -1.0
    assert "Attempts left: 4." in text
    env.close()


def test_a_forbidden_estimator_cannot_be_used_while_exploring(env):
    text = shown(env, "import sklearn.svm as m\nm.SVC().fit(x_train, y_train)")
    assert text.endswith("SVC may not be used")


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (f"```python\n{PROGRAM}\n```", None),
        (f"```submit\n{PROGRAM}\n```", f"{PROGRAM}\n"),
        (f"```python submit\n{PROGRAM}\n```", f"{PROGRAM}\n"),
        (f"I tried this:\n```python\nx_train.head()\n```\nNow:\n```submit\n{PROGRAM}\n```", f"{PROGRAM}\n"),
        (f"```python\n# submit\n{PROGRAM}\n```", f"# submit\n{PROGRAM}\n"),
        (f"# Submit\n{PROGRAM}", f"# Submit\n{PROGRAM}"),
        (f"# run\n{PROGRAM}", None),
        ("# run\nprint('```submit')", None),
        (PROGRAM, PROGRAM),
        ("I give up.", "I give up."),
        ("```text\nx\n```", "```text\nx\n```"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_answer_says_whether_it_explores_or_submits(answer, program):
    assert submitted(answer) == program


def test_all_python_blocks_of_an_answer_run_in_the_interpreter():
    assert cell("First\n```python\na = 1\n```\nthen\n```py\na\n```") == "a = 1\n\na\n"
    assert cell("# run\na = 1\nb") == "a = 1\nb"  # as typed or sent by the tool: line 2 is line 2 of the code


def test_both_actions_are_tools_and_commands_turn_back_into_calls():
    tools = (exploring.RUN_PYTHON, exploring.SUBMIT)
    assert call_of(tools, exploring.SUBMIT.command_of({"code": PROGRAM})) == ("submit", {"code": PROGRAM})
    assert call_of(tools, exploring.RUN_PYTHON.command_of({"code": "a\nb"})) == ("run_python", {"code": "a\nb"})


def test_exploring_needs_a_holdout():
    with pytest.raises(UsageError, match="explore needs a holdout"):
        registry.build("DataSciCoding-iris-v0", explore=3, holdout=0.0, sandbox="process")


def test_a_person_explores_by_plain_lines_and_reads_how_to_submit_and_what_success_needs(env):
    instructions, lines, said = (
        env.instructions,
        iter(["len(x_train)", ":help", "```submit", *STUMP.split("\n"), "```"]),
        [],
    )
    (run,) = play(env, [episode(registry.TASKS["DataSciCoding-explore-v0"], 0)], lambda _: next(lines), said.append)
    assert [turn.commands[0].split("\n")[0] for turn in run.turns] == ["# run", "```submit"]
    assert exploring.PLAY_HELP in said[0] and said[1].startswith("47\n") and said[2].endswith(exploring.PLAY_HELP)
    info = run.turns[-1].info
    assert f"The score that counts is {info['score']:.4f}; success needs {info['threshold']:.4f}." in said[-1]
    assert "threshold" not in run.turns[0].info
    assert env.instructions == instructions
    assert not any(exploring.PLAY_HELP in turn.observation for turn in run.turns)


def test_without_a_score_a_person_reads_that_no_program_ran(driver):
    env = registry.build("DataSciCoding-explore-v0", "dense", sandbox=driver, dataset=("iris",), explore=1, attempts=1)
    lines, said = iter(["1 + 1", "nonsense"]), []
    (run,) = play(env, [episode(registry.TASKS["DataSciCoding-explore-v0"], 0)], lambda _: next(lines), said.append)
    assert said[-1].endswith("No program ran, so there is no score.")
    assert "threshold" not in run.turns[-1].info
    env.close()
