"""Programs are found in replies as language models write them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsuite.envs.datascicoding.replies import extract

PROGRAM = "import numpy as np\n\ndef build_model(x_train, y_train):\n    return fit(x_train, y_train)\n"
OPENINGS = (
    "```python", "```", "```py", "```Python", "```python3", "```Python3.11", "```ipython", "```{python}", "```{.python}",
    '```python title="m.py"', "~~~", "~~~python", "````python", "``` python",
)  # fmt: skip
BEFORE = ("", "Here is the program:\n", "First install it:\n```bash\npip install x\n```\nThen:\n", "> note\n\n")
AFTER = (
    "",
    "\nThis should work.",
    "\nUse it like this:\n```python\nmodel = build_model(x_train, y_train)\n```\n",
    "\nOutput:\n```text\n0.99\n```\n",
)


def replies():
    for opening, before, after in itertools.product(OPENINGS, BEFORE, AFTER):
        mark = opening[: len(opening) - len(opening.lstrip("`~"))]
        yield f"{before}{opening}\n{PROGRAM}{mark}{after}"


def test_the_program_is_found_in_two_hundred_forms_of_reply():
    forms = list(replies())
    assert len(forms) >= 200
    for reply in forms:
        assert extract(reply) == PROGRAM, reply


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\nimport a\n```\nand\n```python\ndef build_model(x, y): return a\n```", 2),
        (
            "```python\ndef build_model(x, y): return 1\n```\nBetter:\n```python\ndef build_model(x, y): return 2\n```",
            1,
        ),
        ("```python\ndef build_model(:\n```\n```python\ndef build_model(x, y): return 2\n```", 1),
        ("```python\nimport (\n```\n```python\ndef build_model(x, y): return 2\n```", 1),
        ("```python\nbuild_model = make()\n```", 1),
    ],
)
def test_helpers_are_joined_and_drafts_are_left_out(answer, code):
    lines = extract(answer).splitlines()
    assert len(lines) == code
    assert "build_model" in lines[-1]


def test_the_feature_variant_looks_for_its_own_function():
    answer = "```python\ndef transform(df): return df\n```\n```python\nbuild_model(transform(df))\n```"
    assert extract(answer, "transform") == "def transform(df): return df\n"


@given(st.text(alphabet="`~pythondef \n(:{}build_model"))
def test_any_text_has_some_code(answer):
    assert extract(answer) in answer or "def" in answer or "build_model" in answer


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```\n```python\ny = 2\n```", "y = 2\n"),
        ("```python\nx = 1", "x = 1"),
    ],
)
def test_the_code_is_the_last_fenced_block_or_the_whole_answer(answer, code):
    assert extract(answer) == code


@given(st.text())
def test_any_answer_can_be_searched_for_code(answer):
    assert isinstance(extract(answer), str)
