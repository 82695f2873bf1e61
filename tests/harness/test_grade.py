"""envsuite grade: outcomes, fallbacks for patches that do not fit, the journal, and the files of SWE-bench's harness."""

import json
import threading

import pytest

from envsuite.envs.swegym import instances
from envsuite.envs.swegym.submissions import PatchGrader
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from harness.grading import command, reports
from harness.grading.run import _graded, grade_all, report_file
from harness.interop.predictions import Prediction, read_predictions
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
GOLD = little.FIX.format("2 * x")
PATCHES = {
    "gold": GOLD,
    "fuzzy": GOLD.replace("@@ -1,2 +1,2 @@\n def double(x):", "@@ -1,2 +1,2 @@\n def doubled(x):"),
    "wrong": little.FIX.format("3 * x"),
    "misfit": GOLD.replace("-    return x", "-    return y"),
    "silent": None,
}
OUTCOMES = {
    "gold": ("resolved", "git apply"),
    "fuzzy": ("resolved", "patch --fuzz=5"),
    "wrong": ("unresolved", "git apply"),
    "misfit": ("not_applied", ""),
    "silent": ("empty", ""),
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prediction(model, patch, instance="a__b-1"):
    return {"instance_id": instance, "model_name_or_path": model, "model_patch": patch}


def command_code(*words):
    with pytest.raises(SystemExit) as ended:
        command.main([str(word) for word in words])
    return ended.value.code


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Returns the folder of a run with all outcomes; its second instance cannot be solved by its gold patch."""
    folder = tmp_path_factory.mktemp("grade")
    rows = [little.record("a__b-1"), little.record("a__b-2", fix="x + x + x")]
    records = little.instances(folder / "records", rows)
    predictions = [prediction(f"org/{model}", patch) for model, patch in PATCHES.items()]
    file = write(folder / "preds.jsonl", [*predictions, prediction("org/gold", GOLD, "a__b-2")])
    words = ("-p", file, "--records", records, "--set", f"sandbox={DRIVER}", "-o", folder / "out", "--run-id", "r1")
    assert command_code(*words, "-j", 2) == 1  # a__b-2 is an error
    return folder, words


def results(folder):
    return [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]


def test_every_outcome_is_told_apart_and_fuzzy_patches_are_applied(graded):
    rows = {(row["model"].removeprefix("org/"), row["instance_id"]): row for row in results(graded[0])}
    for model, expected in OUTCOMES.items():
        row = rows[model, "a__b-1"]
        assert (row["outcome"], row["applied_with"]) == expected, row
    assert rows["wrong", "a__b-1"]["FAIL_TO_PASS"] == {"success": [], "failure": ["tests/test_calc.py::test_one"]}
    assert rows["wrong", "a__b-1"]["PASS_TO_PASS"] == {"success": ["tests/test_calc.py::test_zero"], "failure": []}
    assert "FAILED at 1" in rows["misfit", "a__b-1"]["reason"]


def test_a_record_that_its_gold_patch_does_not_solve_is_an_error_and_no_failure_of_the_model(graded):
    folder, _ = graded
    report = json.loads((folder / "out" / "org__gold.r1.json").read_text())
    assert report["resolved_ids"] == ["a__b-1"]
    assert report["unresolved_ids"] == []
    assert report["error_ids"] == report["infra_failure_ids"] == ["a__b-2"]
    assert "its gold patch fails" in report["failure_reasons"]["a__b-2"]


def test_the_files_of_each_instance_are_written(graded):
    place = graded[0] / "out" / "logs" / "run_evaluation" / "r1"
    report = json.loads((place / "org__wrong" / "a__b-1" / "report.json").read_text())["a__b-1"]
    assert report["patch_successfully_applied"] and not report["resolved"]
    assert report["tests_status"]["FAIL_TO_PASS"]["failure"] == ["tests/test_calc.py::test_one"]
    log = (place / "org__wrong" / "a__b-1" / "test_output.txt").read_text()
    assert "FAILED tests/test_calc.py::test_one" in log and log.endswith(f"{reports.EXIT_CODE}: 1\n")
    assert (place / "org__misfit" / "a__b-1" / "patch.diff").read_text() == PATCHES["misfit"]
    assert not (place / "org__misfit" / "a__b-1" / "report.json").exists()


def test_resume_repeats_errors_alone(graded, capsys):
    folder, words = graded
    before = (folder / "out" / "results.jsonl").read_bytes()
    assert command_code(*words) == 2
    assert "continue with --resume" in capsys.readouterr().err
    assert command_code(*words, "--resume") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("   1")] == [["error", "a__b-2"]]
    assert not any(line.startswith("   2") for line in lines)
    assert (folder / "out" / "results.jsonl").read_bytes() == before


# ---- without a sandbox ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def empty():
    """Returns predictions without patches for three planted tasks, and their grader."""
    names = list(instances.planted_in(""))[:3]
    grader = PatchGrader(sandbox=DRIVER)
    yield [Prediction(name, "m", "") for name in names], grader
    grader.close()


def test_an_interrupted_run_continues_after_its_last_whole_line(empty, tmp_path):
    predictions, grader = empty
    rows = grade_all(predictions, grader, tmp_path, "r", 1)
    results_file = (tmp_path / "results.jsonl").read_bytes()
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(lines[0] + lines[1][:30])
    again = []
    assert len(grade_all(predictions, grader, tmp_path, "r", 1, True, again.append)) == len(rows) == 3
    assert len(again) == 2
    assert (tmp_path / "results.jsonl").read_bytes() == results_file


def test_after_an_interrupt_no_other_patch_is_begun():
    class SlowGrader:
        def __init__(self):
            self.begun, self.go_on = [], threading.Event()

        def grade(self, instance, patch):
            self.begun.append(instance)
            if len(self.begun) > 1:
                self.go_on.wait(10)

    grader = SlowGrader()
    rows = _graded([(Prediction(str(number), "m", ""), ()) for number in range(6)], grader, 1)
    next(rows)
    rows.close()  # as Ctrl-C in the main thread does
    grader.go_on.set()
    worker = next((thread for thread in threading.enumerate() if thread.name == "envsuite-grade-0"), None)
    if worker is not None:
        worker.join(10)
    assert len(grader.begun) <= 2


def test_a_grader_that_is_closed_begins_nothing():
    grader = PatchGrader(sandbox=DRIVER)
    grader.close()
    (name, *_) = grader.ids
    verdict = grader.grade(name, "x")
    assert (verdict.outcome, verdict.reason) == ("error", "Grading was stopped.")


def test_a_changed_patch_is_graded_again(empty, tmp_path):
    predictions, grader = empty
    grade_all(predictions, grader, tmp_path, "r", 1)
    again = []
    changed = [Prediction(predictions[0].instance_id, "m", "\n"), *predictions[1:]]
    grade_all(changed, grader, tmp_path, "r", 1, True, again.append)
    assert [row["instance_id"] for row in again] == [predictions[0].instance_id]


def test_the_report_counts_every_instance_once(empty, tmp_path):
    predictions, grader = empty
    grade_all(predictions, grader, tmp_path, "r", 1)
    report = json.loads(report_file(tmp_path, "r", "m").read_text())
    assert report["total_instances"] == len(grader.ids)
    assert report["empty_patch_ids"] == sorted(entry.instance_id for entry in predictions)
    assert len(report["incomplete_ids"]) == len(grader.ids) - 3
    assert report["schema_version"] == 2


def test_unknown_instances_and_unusable_names_are_refused_before_anything_is_written(empty, tmp_path):
    predictions, grader = empty
    with pytest.raises(UsageError, match=r"no instance 'x__y-1' among the \d+ planted tasks: name the file"):
        grade_all([Prediction("x__y-1", "m", "")], grader, tmp_path / "a", "r", 1)
    with pytest.raises(UsageError, match=r"'\.\./m' cannot name a folder"):
        grade_all([Prediction(predictions[0].instance_id, "../m", "")], grader, tmp_path / "b", "r", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_journal_is_named_with_its_line(empty, tmp_path):
    predictions, grader = empty
    (tmp_path / "journal.jsonl").write_text('{"schema_version": "envsuite-grade-1"}\n')
    with pytest.raises(DataError, match=r"journal\.jsonl:1 is not a result"):
        grade_all(predictions, grader, tmp_path, "r", 1, resume=True)


def test_predictions_are_read_from_lines_lists_and_objects(tmp_path):
    row = prediction("m", "p")
    expected = [Prediction("a__b-1", "m", "p")]
    assert read_predictions(write(tmp_path / "a.jsonl", [row])) == expected
    (tmp_path / "b.json").write_text(json.dumps([row]))
    assert read_predictions(tmp_path / "b.json") == expected
    (tmp_path / "c.json").write_text(json.dumps({"a__b-1": {"model_name_or_path": "m", "model_patch": "p"}}))
    assert read_predictions(tmp_path / "c.json") == expected
    unnamed = write(tmp_path / "gpt.jsonl", [{"instance_id": "a__b-1", "model_patch": None}])
    assert read_predictions(unnamed) == [Prediction("a__b-1", "gpt", "")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r":1 is not JSON"),
        ("[]", r":1: a prediction is a JSON object, not '\[\]'"),
        ('{"instance_id": "a"}', "field 'model_patch' is missing"),
        ('{"instance_id": 3, "model_patch": ""}', "field 'instance_id' is '3', not text"),
        ('{"instance_id": "a", "model_patch": 3}', "field 'model_patch' is '3', not text"),
        (
            '{"instance_id": "a", "model_patch": ""}\n{"instance_id": "a", "model_patch": ""}',
            ":2: p has a second patch",
        ),
        ("", "contains no predictions"),
    ],
)
def test_a_bad_prediction_is_named(tmp_path, text, message):
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_predictions(path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--run-id", "a/b"), "--run-id 'a/b' must consist of letters"),
        (("--set", "bugs=3"), "grading has the knobs tasks"),
        (("-i", "a__b-9"), "no prediction for 'a__b-9'"),
        (("-j", "-1"), "--num-workers must be at least 1"),
        (("--set", "sandbox=nix"), "nix"),
    ],
)
def test_bad_flags_get_one_line(tmp_path, capsys, words, message):
    file = write(tmp_path / "p.jsonl", [prediction("m", "")])
    assert command_code("-p", file, *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_file_without_records_is_refused(tmp_path, capsys):
    assert command_code("-p", "gold", "--records", write(tmp_path / "r.jsonl", [])) == 2
    assert "r.jsonl" in capsys.readouterr().err
