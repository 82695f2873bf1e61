"""Issue texts that a model has written in other words: leaks and lost facts are found, and the original stays."""

import json
import re

import pytest

from envsuite.envs.swegym.mined import library, paraphrase
from envsuite.envs.swegym.published import records
from harness.mining import command
from tests.api.server import running

PATCH = """\
diff --git a/pack/words.py b/pack/words.py
--- a/pack/words.py
+++ b/pack/words.py
@@ -1,4 +1,5 @@ def split_words(text):
 def split_words(text):
-    return text.split(" ")
+    trimmed_text = text.strip()
+    return trimmed_text.split()
"""
TEXT = """\
pack 1.0 does not return the right value in the following case.

This check fails:

    text = " a b"
    assert pack.count(text) == 2

Got: `3`
Expected: `2`

The release notes of the next version list this as a bug fix and mention `pack.io`.

Change the package itself so that this works, and break nothing that works now."""
ROW = {
    "instance_id": "pypi__pack-1.1-0",
    "repo": "pypi/pack",
    "base_commit": "0",
    "patch": PATCH,
    "test_patch": "diff --git a/tests/test_words.py b/tests/test_words.py\n",
    "problem_statement": TEXT,
    "hints_text": "The fix belongs in `pack/words.py` (split_words, tally).\n\nThese tests of the next release fail:\n",
    "FAIL_TO_PASS": ["tests/test_words.py::test_leading_space"],
    "PASS_TO_PASS": [],
}
RECORD = records.parse(ROW, "here")
GOOD = """\
I count the words of a text with pack 1.0. A text that begins with a space is counted wrongly:

```python
text = " a b"
assert pack.count(text) == 2
```

It should return `2`, but I get `3`."""


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("It should return `2`, but I get `3`.", "It returns `3` instead of `2`."),
        GOOD.replace("It should return `2`, but I get `3`.", "Got: `3`\nExpected: `2`"),
    ],
)
def test_a_text_with_all_facts_and_nothing_else_has_no_faults(text):
    assert paraphrase.faults(RECORD, text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty or the original"),
        (TEXT + "\n", "it is empty or the original"),
        (GOOD + "\n\nreturn trimmed_text.split() helps.", "it contains code of the gold patch"),
        (GOOD + " Is the trimmed_text wrong?", "it contains a name that the gold patch adds"),
        (GOOD + " I think split_words is wrong.", "it names a function or class of the gold patch"),
        (GOOD + " I think tally() is wrong.", "it names a function or class of the gold patch"),
        (GOOD + " Look into words.py for it.", "it names a file of the gold patch"),
        (GOOD + " Look into pack.words for it.", "it names a file of the gold patch"),
        (GOOD + " Run test_leading_space.", "it names a test"),
        (GOOD + " Run test_words.", "it names a test"),
        (GOOD.replace('text = " a b"\n', ""), "it lacks a line of the check"),
        (GOOD.replace("`3`", "another number"), "it lacks a value"),
        (GOOD.replace("`2`", "`3`").replace("get `3`", "get `2`"), "it exchanges got and expected"),
        (
            GOOD.replace("It should return `2`, but I get `3`.", "It returns `2`, not `3`."),
            "it exchanges got and expected",
        ),
        (GOOD.replace("It should return `2`, but I get `3`.", "See `2` and `3`."), "it does not say which value"),
        (GOOD + "\n\n    assert pack.count('x y z') == 3", "it states code or a value that the original does not have"),
        (GOOD + "\nExpected: 17", "it states code or a value that the original does not have"),
        (GOOD + " word" * 400, "it is too long"),
        ("Here is the rewritten report. " + GOOD, "it speaks of its own writing"),
    ],
)
def test_a_leak_or_a_lost_fact_is_named(text, fault):
    assert any(reason.startswith(fault) for reason in paraphrase.faults(RECORD, text))


def test_a_missing_error_must_be_said():
    text = TEXT.replace("Got: `3`\nExpected: `2`", "No error is raised, but one should be.")
    record = records.parse({**ROW, "problem_statement": text}, "here")
    begun = GOOD.partition("It should")[0]
    assert paraphrase.faults(record, begun + "The call should raise an exception.") == []
    assert paraphrase.faults(record, begun + "Please help.") == ["it does not say that an error is missing"]


def test_the_checks_hold_for_every_shipped_text():
    for task in library.mined_tasks().values():
        text = task.record.problem_statement.replace("This check fails:", "This goes wrong here:")
        assert paraphrase.faults(task.record, text) == []
        added = [line[1:] for line in task.record.patch.splitlines() if line.startswith("+") and line[:3] != "+++"]
        if any(len(line.strip()) >= 12 and line.strip() not in text for line in added):
            assert "it contains code of the gold patch" in paraphrase.faults(task.record, "\n".join([text, *added]))
        (path, *_) = re.findall(r"^\+\+\+ b/(.+)", task.record.patch, re.MULTILINE)
        if path not in task.record.problem_statement:
            assert "it names a file of the gold patch" in paraphrase.faults(task.record, f"{text} See {path}.")
        exchanged = re.sub(r"Got: `(.+)`\nExpected: `(.+)`", r"Got: `\2`\nExpected: `\1`", text)
        if exchanged != text:
            assert "it exchanges got and expected" in paraphrase.faults(task.record, exchanged)


def write_records(path, count):
    path.write_text("".join(json.dumps({**ROW, "instance_id": f"pypi__pack-1.1-{i}"}) + "\n" for i in range(count)))
    return path


def test_a_model_on_a_server_rewords_records_and_a_faulty_text_is_dropped_with_its_reason(tmp_path, capsys):
    source, output = write_records(tmp_path / "in.jsonl", 3), tmp_path / "out.jsonl"
    said = iter([GOOD, GOOD + " I think split_words is wrong.", GOOD])
    with running() as server:
        server.says = lambda body: next(said)
        flags = ["-m", "openai:small-model", "--base-url", server.url]
        for most in ("2", "3"):  # the second call continues the first one
            with pytest.raises(SystemExit) as ended:
                command.main(["reword", str(source), *flags, "-o", str(output), "-n", most])
            assert not ended.value.code
        assert len(server.requests) == 3
        assert server.requests[0][0]["messages"][-1]["content"] == TEXT
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert sorted((row["reworded_by"], row["problem_statement"]) for row in rows) == [
        ("", TEXT),
        ("small-model", GOOD),
        ("small-model", GOOD),
    ]
    shown = capsys.readouterr().out
    assert "1 kept the original: it names a function or class of the gold patch" in shown
    assert [record.instance_id for record in records.load(output)] == [row["instance_id"] for row in rows]


def test_texts_of_two_models_are_not_mixed_in_one_file(tmp_path, capsys):
    source, output = write_records(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    with running() as server:
        server.says = lambda body: GOOD
        flags = ["--base-url", server.url, "-o", str(output)]
        for model, most, code in (("one", "1", 0), ("other", "2", 2), ("one", "2", 0)):
            with pytest.raises(SystemExit) as ended:
                command.main(["reword", str(source), "-m", f"openai:{model}", *flags, "-n", most])
            assert ended.value.code == code
    assert f"{output} holds texts of one, not of other: name another file" in capsys.readouterr().err
    assert [json.loads(line)["reworded_by"] for line in output.read_text().splitlines()] == ["one", "one"]


def test_a_text_with_faults_is_tried_again(tmp_path):
    source, output = write_records(tmp_path / "in.jsonl", 1), tmp_path / "out.jsonl"
    said = iter(["No.", GOOD])
    with running() as server:
        server.says = lambda body: next(said)
        flags = ["-m", "openai:small-model", "--base-url", server.url, "-o", str(output), "-a", "2"]
        with pytest.raises(SystemExit):
            command.main(["reword", str(source), *flags])
    (row,) = map(json.loads, output.read_text().splitlines())
    assert row["problem_statement"] == GOOD


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-m", "random"], "writes no texts"),
        (["-m", "openai:x", "-n", "0"], "--most must be at least 1, not 0"),
        (["absent.jsonl", "-m", "hf:smollm2-135m"], "does not exist"),
        (["-m", "openai:x", "-o", "out"], "--output out is no .jsonl file"),
        (["in.jsonl", "-m", "openai:x", "-o", "./in.jsonl"], "--output in.jsonl is the file of the original records"),
    ],
)
def test_unusable_arguments_are_one_line(flags, message, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["reword", *flags])
    assert ended.value.code
    assert message in capsys.readouterr().err
