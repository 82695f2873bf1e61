"""Evaluation runs on disk: journal, results, resume, lock; interrupted runs resume to the same bytes."""

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import filelock
import pytest

from envsuite import registry
from envsuite.errors import DataError, UsageError
from harness import cost, records
from harness.cli import eval as evaluation
from harness.evaluate import Budget, Execution, RunConfig, evaluate
from harness.policies import make_policy
from harness.stats.summary import summarise
from tests import toys

ROOT = Path(__file__).resolve().parents[2]


def config(name="HiLo-v0", model="random", **kwargs):
    return RunConfig(task=registry.TASKS[name], model=model, **{"episodes": 10, **kwargs})


def run(cfg, out, **execution):
    results, summary = evaluate(cfg, out, lambda: make_policy(cfg.model), Execution(**execution))
    return list(results), summary


def cli(*words, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "harness.cli.eval", "--module", "tests.toys", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        **kwargs,
    )


def here(*words):
    """Runs the command in this process, without workers; returns its exit code."""
    with pytest.raises(SystemExit) as done:
        evaluation.main(["--num-workers", "0", *map(str, words)])
    return done.value.code


def test_a_run_leaves_five_files_and_results_sorted_by_key(tmp_path):
    results, summary = run(config(attempts=2), tmp_path)
    folder = config(attempts=2).folder(tmp_path)
    assert {path.name for path in folder.iterdir()} - {".lock"} == {
        "config.json", "journal.jsonl", "results.jsonl", "timing.jsonl", "summary.json",
    }  # fmt: skip
    assert results == list(map(records.light, records.read_results(folder / "results.jsonl"))) and len(results) == 20
    assert [records.key_of(record) for record in results] == sorted(map(records.key_of, results))
    assert summary["success"]["n"] == 10  # clusters, not episodes
    text = (folder / "results.jsonl").read_text()
    assert str(tmp_path) not in text and config(attempts=2).run_id not in text


def test_a_jumping_wall_clock_changes_no_result(tmp_path, monkeypatch):
    run(config(), tmp_path / "whole")
    jumps = itertools.cycle([2e9, 1e9, 4e9])
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    run(config(), tmp_path / "jumps", budget=Budget(seconds=1000))
    folders = [config().folder(tmp_path / name) for name in ("whole", "jumps")]
    assert len({(folder / "results.jsonl").read_bytes() for folder in folders}) == 1
    lines = [json.loads(line) for line in (folders[1] / "timing.jsonl").read_text().splitlines()]
    assert {line["ended"] for line in lines} == {2e9, 1e9, 4e9} and all(0 <= line["seconds"] < 300 for line in lines)


def test_run_id_depends_on_the_measurement_settings():
    base = config()
    assert base.run_id == config().run_id
    assert base.run_id != config(episodes=11).run_id != config(reward_mode="dense").run_id
    assert base.run_id != config(knobs={"size": 8}).run_id


def test_an_existing_run_needs_resume(tmp_path):
    first = run(config(), tmp_path)
    with pytest.raises(UsageError, match="--resume"):
        run(config(), tmp_path)
    assert run(config(), tmp_path, resume=True) == first


def test_a_second_process_on_a_run_is_refused(tmp_path):
    folder = config().folder(tmp_path)
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / ".lock"), pytest.raises(UsageError, match="another process"):
        run(config(), tmp_path)


def test_broken_episodes_are_played_again_on_resume_and_superseded(tmp_path):
    cfg = config("Faulty-v0", "expert", episodes=6, knobs={"how": "raise"})
    results, summary = run(cfg, tmp_path)
    assert summary["broken"] == 2 and summary["episodes"] == 4 and summary["success"]["value"] == 1.0
    toys.Faulty._act, broken = toys.HiLo._act, toys.Faulty._act  # the engine is repaired
    try:
        results, summary = run(cfg, tmp_path, resume=True)
    finally:
        toys.Faulty._act = broken
    assert summary["broken"] == 0 and len(results) == 6


def test_remaining_counts_the_episodes_that_resume_would_play(tmp_path):
    """Counts broken episodes once, also after failed retries, and ignores a truncated last line."""
    cfg = config("Faulty-v0", "expert", episodes=6, knobs={"how": "raise"})
    assert cost.remaining(cfg, tmp_path) == 6
    run(cfg, tmp_path)
    assert cost.remaining(cfg, tmp_path) == 2
    run(cfg, tmp_path, resume=True)  # two more broken lines
    assert cost.remaining(cfg, tmp_path) == 2
    journal = cfg.folder(tmp_path) / "journal.jsonl"
    good = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"broken"' not in line]
    journal.write_bytes(good[0] + good[1][:50])
    assert cost.remaining(cfg, tmp_path) == 5


def test_a_truncated_last_line_is_dropped_and_a_corrupt_line_is_named(tmp_path):
    expected, _ = run(config(), tmp_path)
    folder = config().folder(tmp_path)
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    assert run(config(), tmp_path, resume=True)[0] == expected
    journal.write_bytes(b"".join(lines[:3]) + b"{not json}\n" + b"".join(lines[4:]))
    with pytest.raises(DataError, match=r"journal\.jsonl:4"):
        run(config(), tmp_path, resume=True)


def test_the_first_complete_line_of_an_episode_counts_or_else_the_last(tmp_path):
    """Holds with other lines in between, and after the journal is reopened."""
    run(config(attempts=2), tmp_path)
    some = records.read_results(config(attempts=2).folder(tmp_path) / "results.jsonl")

    def broken(record, error):
        return {**record, "stop_reason": "broken", "error": error}

    different_knobs = {**some[0], "knobs": {"size": 8}}
    lines = [some[3], broken(some[0], "a"), different_knobs, broken(some[1], "b"), some[0], {**some[0], "reward": 7.0}]
    lines += [broken(some[0], "c"), broken(some[1], "d"), some[2]]
    expected = [some[0], broken(some[1], "d"), some[2], some[3]]
    path = tmp_path / "journal.jsonl"
    journal = records.Journal(path)
    for line in lines:
        journal.append(line)
    keys = {records.key_of(line) for line in expected}
    for _ in range(2):
        assert list(journal.lines(keys)) == list(map(records.dump, expected))
        assert journal.done() == {records.key_of(line) for line in (some[0], different_knobs, some[2], some[3])}
        journal.close()
        journal = records.Journal(path)
    journal.close()


def test_memory_per_episode_of_a_journal_does_not_depend_on_its_length(tmp_path):
    run(config(), tmp_path)
    (record, *_) = records.read_results(config().folder(tmp_path) / "results.jsonl")
    bytes_per_episode = []
    for size in (1, 2000):
        journal = records.Journal(tmp_path / f"{size}.jsonl")
        tracemalloc.start()
        for seed in range(1000, 3000):
            journal.append({**record, "seed": seed, "error": f"{seed}" * size, "metrics": {"score": seed / 7}})
        bytes_per_episode.append(tracemalloc.get_traced_memory()[0] / 2000)
        tracemalloc.stop()
        journal.close()
    assert max(bytes_per_episode) < 100, "bytes per episode"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("envsuite-record-7", "use the version of envsuite that wrote the file"),
        ("other-1", "run the settings of its config"),
        (None, "use the version of envsuite that wrote"),
    ],
)
def test_a_record_of_another_schema_raises_with_the_migration(tmp_path, schema, message):
    run(config(), tmp_path)
    file = config().folder(tmp_path) / "results.jsonl"
    stored = records.read_results(file)
    file.write_bytes(records.dump(stored[0]) + records.dump({**stored[1], "schema_version": schema}))
    with pytest.raises(DataError, match=rf"results\.jsonl:2 has schema_version .*{message}"):
        records.read_results(file)


def test_records_store_any_string():
    nasty = {"text": "\ud800 é \x00 \u2028 🧊"}
    assert json.loads(records.dump(nasty)) == nasty
    assert records.dump(nasty).count(b"\n") == 1


KILLS = [("random", 2, 2), ("expert", 1, 1), ("replay", 1, 1)]
"""Player, processes and number of kills; `make proof` kills every player three times with one and two processes."""
MORE_KILLS = [(model, workers, 3) for model in ("random", "expert", "replay") for workers in (1, 2)]


@pytest.mark.parametrize(
    ("model", "workers", "most_kills"), [*KILLS, *(pytest.param(*row, marks=pytest.mark.slow) for row in MORE_KILLS)]
)
def test_a_run_killed_anywhere_ends_in_the_same_bytes(tmp_path, model, workers, most_kills, proved):
    delay = 0.02 * workers  # keeps the duration independent of the number of workers
    size = ("--set", f"delay={delay:g}", "--set", "size=512", "--set", "max_steps=6")
    words = ["-e", "Slow-v0", "-n", 12, *size, "--baselines", "none"]
    if model == "replay":
        assert here("-m", "random", *words, "-o", tmp_path / "source") == 0
        (source,) = (tmp_path / "source").glob("**/results.jsonl")
        model = f"replay:{source}"
    assert here("-m", model, *words, "-o", tmp_path / "whole") == 0
    (expected,) = (tmp_path / "whole").glob("**/results.jsonl")
    rng = random.Random(f"{model.partition(':')[0]}{workers}")
    command = [sys.executable, "-m", "harness.cli.eval", "--module", "tests.toys", "-m", model, *map(str, words)]
    command += ["-o", str(tmp_path / "cut"), "--num-workers", str(workers), "-c", "4", "--resume"]
    kills = 0
    for _ in range(most_kills):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        journal_before = _journal_size(tmp_path / "cut")
        deadline = time.monotonic() + 150
        more_lines = rng.randint(1, 3)
        while process.poll() is None and time.monotonic() < deadline:
            if _journal_size(tmp_path / "cut") >= journal_before + more_lines:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        process.wait()
    last = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    (resumed,) = (tmp_path / "cut").glob("**/results.jsonl")
    who = model.partition(":")[0]
    proved(
        f"{who}, {workers} processes: the run killed {kills} times, then --resume",
        expected.read_bytes(),
        resumed.read_bytes(),
    )
    assert kills >= 1


def _journal_size(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("**/journal.jsonl"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "random", "-e", "hilow"], "Did you mean 'HiLo-v0'"),
        (["-m", "random", "-e", "hilo", "--set", "sise=3"], "Did you mean 'size'"),
        (["-m", "random", "-e", "hilo", "--set", "size=1"], "2..1024"),
        (["-m", "random", "-e", "hilo", "--set", "size"], "KNOB=VALUE"),
        (["-m", "random", "-e", "hilo", "--split", "tset"], "Did you mean 'test'"),
        (["-m", "random", "-e", "hilo", "-n", "0"], "--episodes"),
        (["-m", "random", "-e", "hilo", "--baselines", "expret"], "--baselines 'expret' is not one of random"),
        (["-m", "random", "-e", "hilo", "-n", "2000"], "has 1000 seeds"),
        (["-m", "replay:/nowhere.jsonl", "-e", "hilo"], "Cannot read /nowhere.jsonl"),
        (["-m", "random:fast", "-e", "hilo"], "no player 'random:fast': write random"),
        (["-m", "random", "-e", "hilo", "--baselines", "expert:"], "no player 'expert:': write expert"),
        (["-m", "random", "-e", "hilo", "--module", "no_such_module"], "no_such_module"),
        (["-m", "random", "-e", "hilo", "-n", "2", "-o", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_bad_input_raises_one_line_and_exits_with_code_2(tmp_path, words, message, capsys):
    if "-o" not in words:
        words = [*words, "-o", str(tmp_path)]
    assert here(*words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_full_disk_raises_one_line_and_loses_no_episode(tmp_path):
    expected, _ = run(config(), tmp_path / "whole")

    def limit():
        """Limits the file size, so that a write fails halfway as on a full disk."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    words = ("-m", "random", "-e", "hilo", "-n", 10, "-o", tmp_path / "full", "--baselines", "none", "--num-workers", 0)
    done = cli(*words, preexec_fn=limit)
    assert done.returncode == 2 and "File too large" in done.stderr and done.stderr.count("\n") == 1
    assert 0 < _journal_size(tmp_path / "full") < 10
    assert run(config(), tmp_path / "full", resume=True)[0] == expected


def test_dry_run_plays_nothing_and_needs_no_weights(tmp_path):
    done = cli("-m", "qwen2.5-3b", "-e", "hilo", "-n", 3, "-o", tmp_path, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen2.5-3B-Instruct" in done.stdout and not list(tmp_path.iterdir())


def test_json_prints_one_document_and_nothing_else_on_stdout(tmp_path, capsys):
    assert here("-m", "random", "-e", "hilo", "-n", 3, "-o", tmp_path, "--json") == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert set(document["rows"]) == {"random", "expert"}


def test_a_budget_stops_a_run_cleanly_and_resume_completes_it(tmp_path):
    expected, _ = run(config(model="expert"), tmp_path / "whole")
    words = ("-m", "expert", "-e", "hilo", "-n", 10, "-c", 1, "-o", tmp_path / "cut", "--baselines", "none")
    words = (*words, "--num-workers", 0)
    done = cli(*words, "--max-time", 1e-9)
    assert done.returncode == 3
    assert "--resume" in done.stderr and "1 of 10 episodes" in done.stderr
    assert cli(*words, "--resume").returncode == 0
    resumed = records.read_results(next((tmp_path / "cut").glob("**/results.jsonl")))
    assert list(map(records.light, resumed)) == expected


@pytest.mark.parametrize("limit", [{"seconds": -5.0}, {"cost": -1.0}, {"tokens": -1}, {"seconds": float("nan")}])
def test_a_budget_that_is_no_limit_is_refused(limit):
    with pytest.raises(UsageError, match=r"^--max-\S+ must be at least 0, not "):
        Budget(**limit)


@pytest.mark.parametrize(
    ("task", "limit", "most"), [("BabyAI-medium-v0", 5, 5), ("BabyAI-medium-v0", None, 0), ("HiLo-v0", 3, 3)]
)
def test_the_limit_of_turns_bounds_those_that_are_left_to_play(task, limit, most):
    assert RunConfig(registry.TASKS[task], "random", max_turns=limit).turn_cap == most


def test_a_budget_covers_all_runs_of_a_call():
    used = {"input_tokens": 60, "output_tokens": 40, "cost": 0.5}
    now = time.monotonic()
    before = [{"spent": used}]
    assert not Budget(tokens=201, cost=1.1, seconds=1e6).after(now, before).reached([used], now)
    assert "200" in Budget(tokens=200).after(now, before).reached([used], now)
    assert "USD" in Budget(cost=1.0).after(now, before).reached([used], now)
    assert "--max-time" in Budget(seconds=1000).after(now - 1000, []).reached([], now)


def test_a_run_without_a_scored_episode_has_a_summary_that_is_json():
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads(json.dumps(summarise([])), parse_constant=refuse)


def test_show_prompt_prints_the_messages_and_plays_nothing(tmp_path):
    done = cli("-m", "qwen2.5-3b", "-e", "hilo", "--show-prompt", "-o", tmp_path, "--thinking", "off")
    assert done.returncode == 0, done.stderr
    assert "Admissible commands" in done.stdout and not list(tmp_path.iterdir())


def test_labels_of_other_types_are_stored_as_strings(tmp_path, monkeypatch):
    monkeypatch.setattr(toys.HiLo, "labels", lambda self: {"task_type": self.secret % 2})
    results, _ = run(config(), tmp_path, num_workers=0)
    assert {record["labels"]["task_type"] for record in results} == {"0", "1"}
