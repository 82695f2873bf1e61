"""Runs of inspect, Harbor and verifiers in envsuite compare: scores, attempts, broken episodes, damaged files."""

import json
import zipfile

import pytest

from envsuite.errors import DataError, EnvsuiteError
from harness.cli import compare as compare_cli
from harness.interop import other_runs
from harness.stats.compare import compare, read_run
from tests import toys  # noqa: F401  registers environments


def compared(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        compare_cli.main(list(map(str, words)))
    return ended.value.code, capsys.readouterr()


# ---- inspect ----


def inspect_log(path, model, values, temperature=0.5):
    """Writes a log with inspect's own functions; `values` has the score of each sample and epoch, None for an error."""
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    from inspect_ai.model import GenerateConfig
    from inspect_ai.scorer import Score

    samples = [
        log.EvalSample(
            id=name,
            epoch=epoch,
            input="question",
            target="answer",
            scores=None if value is None else {"match": Score(value=value)},
            error=log.EvalError(message="no answer", traceback="", traceback_ansi="") if value is None else None,
        )
        for (name, epoch), value in values.items()
    ]
    spec = log.EvalSpec(
        created="2026-11-22T00:00:00+00:00",
        task="parity",
        model=model,
        dataset=log.EvalDataset(),
        config=log.EvalConfig(epochs=2),
        model_generate_config=GenerateConfig(temperature=temperature),
    )
    log.write_eval_log(log.EvalLog(status="success", eval=spec, samples=samples), str(path))
    return path


def test_an_inspect_log_gives_scores_by_sample_and_epoch_without_errors(tmp_path):
    values = {("a", 1): "C", ("a", 2): "I", ("b", 1): "P", ("b", 2): None, ("c", 1): 0.25, ("c", 2): True}
    (run,) = other_runs.read(inspect_log(tmp_path / "one.eval", "org/model", values))
    assert run.name == "org/model" and run.config["attempts"] == 2 and run.config["sampling"] == {"temperature": 0.5}
    assert [record["reward"] for record in run.records] == [1.0, 0.0, 0.5, 0.25, 1.0]
    assert [record["success"] for record in run.records] == [True, False, False, False, True]
    assert len({record["seed"] for record in run.records}) == 3


def test_scores_of_inspect_may_have_several_values(tmp_path):
    values = {("1", 1): {"success": 1, "steps": 7, "note": None}, ("01", 1): [1, 2]}
    (run,) = other_runs.read(inspect_log(tmp_path / "one.eval", "m", values))
    (record,) = run.records
    assert record["seed"] == 1 and record["metrics"] == {"match.success": 1.0, "match.steps": 7.0}


def test_two_inspect_logs_are_compared_on_their_common_samples(tmp_path, capsys):
    better = inspect_log(tmp_path / "b.eval", "better", {(str(n), 1): "C" for n in range(12)})
    worse = inspect_log(tmp_path / "w.eval", "worse", {(str(n), 1): "I" for n in range(2, 14)})
    code, output = compared(capsys, worse, better, "--json")
    (pair,) = json.loads(output.out)["differences"]
    assert code == 0 and pair["games"] == 10 and pair["mean"]["value"] == 1.0 and pair["p"] < 0.01
    _, output = compared(capsys, worse, better)
    assert "does not state" in output.out and "max_turns" in output.out
    hot = inspect_log(tmp_path / "h.eval", "hot", {(str(n), 1): "C" for n in range(12)}, temperature=1.0)
    code, output = compared(capsys, worse, hot)
    assert code == 2 and "sampling" in output.err


# ---- Harbor ----


def trial(job, name, task, rewards=None, exception=None, agent="terminus", model="m"):
    result = {
        "task_name": task,
        "trial_name": name,
        "source": "terminal-bench",
        "agent_info": {"name": agent, "version": "1", "model_info": {"name": model, "provider": "p"}},
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": exception and {"exception_type": exception, "exception_message": "x"},
    }
    (job / name).mkdir(parents=True)
    (job / name / "result.json").write_text(json.dumps(result))


def test_a_harbor_job_gives_one_run_per_agent_and_keeps_harbors_own_faults_out(tmp_path):
    job = tmp_path / "job"
    trial(job, "a__1", "a", {"reward": 1.0})
    trial(job, "a__2", "a", {"tests": 0.5, "reward": 0.0})
    trial(job, "b__1", "b", {"reward": 0.0}, "AgentTimeoutError")
    trial(job, "b__2", "b", {"reward": 0.0}, "EnvironmentStartTimeoutError")
    trial(job, "c__1", "c")
    trial(job, "d__1", "a", {"reward": 1}, agent="other")
    (job / "result.json").write_text('{"stats": {}}')
    first, second = other_runs.read(job)
    assert (first.name, second.name) == ("terminus m", "other m")
    assert [(record["attempt"], record["success"]) for record in first.records] == [(0, True), (1, False), (0, False)]
    assert first.records[1]["metrics"] == {"tests": 0.5} and first.config["attempts"] == 2
    (pair,) = compare([first, second])
    assert pair.games == 1 and pair.mean.value == 0.5


# ---- verifiers ----


def line(seed, score, ok=True, **info):
    rewards = {"return": {"score": score, "weight": 2.0}} if ok else {"return": None}
    trace = {
        "agent": {"config": {"model": "m", "sampling": {"temperature": 0.5, "top_p": None}}},
        "rewards": rewards,
        "metrics": {"length": 3.0, "format": None},
        "info": info,
        "errors": [] if ok else [{"type": "ModelError", "message": "server away"}],
    }
    task = {"type": "T", "data": {"idx": seed}, "key": f"key-{seed}"}
    return json.dumps({"env": {"id": "gsm8k"}, "task": task, "ok": ok, "errors": [], "traces": [trace]}) + "\n"


def test_rollouts_of_verifiers_are_attempts_and_errors_are_broken(tmp_path):
    lines = [line(0, 0.5), line(0, 0.0), line(1, 0.1), line(1, 0.0, ok=False)]
    (tmp_path / "traces.jsonl").write_text("".join(lines) + '{"half')
    (run,) = other_runs.read(tmp_path)
    assert [(record["attempt"], record["reward"]) for record in run.records] == [(0, 1.0), (1, 0.0), (0, 0.2)]
    assert [record["success"] for record in run.records] == [True, False, False]
    assert run.records[0]["metrics"] == {"length": 3.0} and run.config["sampling"] == {"temperature": 0.5}


# ---- SWE-bench ----


def test_reports_of_swebench_are_compared_without_errors_of_the_infrastructure(tmp_path, capsys):
    for model, resolved in (("a", ["i-1", "i-2"]), ("b", ["i-1"])):
        report = {"schema_version": 2, "submitted_ids": ["i-1", "i-2", "i-3", "i-4"], "resolved_ids": resolved}
        report |= {"infra_failure_ids": ["i-4"], "failure_reasons": {"i-4": "no image"}}
        (tmp_path / f"{model}.run.json").write_text(json.dumps(report))
    (run,) = other_runs.read(tmp_path / "a.run.json")
    assert run.name == "a" and [record["success"] for record in run.records] == [True, True, False]
    code, output = compared(capsys, tmp_path / "a.run.json", tmp_path / "b.run.json", "--json")
    (pair,) = json.loads(output.out)["differences"]
    assert code == 0 and pair["games"] == 3 and pair["mean"]["value"] == pytest.approx(-1 / 3)


# ---- Damaged files ----


def test_damaged_files_are_one_line(tmp_path, capsys):
    bad = tmp_path / "bad.eval"

    def refused(path, match):
        with pytest.raises(DataError, match=match) as error:
            other_runs.read(path)
        assert "\n" not in str(error.value)

    bad.write_bytes(b"PK not a zip")
    refused(bad, "not a whole inspect log")
    for header, summaries in (
        ("{}", "[]"),
        ('{"status": "started"}', "[]"),
        ('{"status": "success", "eval": {"task": 3, "model": "m", "config": {}}}', "[]"),
        ('{"status": "success", "eval": {"task": "t", "model": "m", "config": {}}}', "[]"),
        ('{"status": "success", "eval": {"task": "t", "model": "m", "config": {}}}', '[{"id": "a", "epoch": "b"}]'),
        ("[" * 1000, "[]"),
    ):
        with zipfile.ZipFile(bad, "w") as archive:
            archive.writestr("header.json", header)
            archive.writestr("summaries.json", summaries)
        refused(bad, "bad.eval")
    content = bytearray(bad.read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # both headers of the first member say: encrypted
        content[content.index(mark) + place] |= 1
    bad.write_bytes(content)
    refused(bad, "encrypted")
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (2**26 + 1))
    refused(bad, "larger than 64 MB")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "traces.jsonl").write_text('{"task": 3}\n' + line(0, 1.0))
    refused(tmp_path / "run", r"traces.jsonl:1 is not a finished episode")
    trial(tmp_path / "job", "a__1", "a", {"reward": "high"})
    refused(tmp_path / "job", "job")
    code, output = compared(capsys, bad, bad)
    assert code == 2 and output.err.startswith("error: ") and output.err.count("\n") == 1


def test_one_run_alone_or_no_run_is_refused(tmp_path, capsys):
    trial(tmp_path / "job", "a__1", "a", {"reward": 1.0})
    assert "two or more" in compared(capsys, tmp_path / "job")[1].err
    assert other_runs.read(tmp_path / "nothing") == []
    with pytest.raises(EnvsuiteError):
        read_run(tmp_path / "nothing")
