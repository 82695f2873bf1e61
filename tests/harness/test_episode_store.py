"""The store of finished episodes: reuse, honest accounting, two writers, crashes, damage, strangers, pruning."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import DataError
from harness import records
from harness.cli import cache as cache_cli
from harness.cli import eval as eval_cli
from harness.episodes import settings as settings_module
from harness.episodes.settings import settings_of
from harness.episodes.store import EpisodeStore
from harness.evaluate import Budget, Execution, RunConfig, evaluate
from harness.policies import identity, make_policy
from harness.policies.identities import Fingerprint
from tests import toys  # noqa: F401  registers environments

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"task": "HiLo-v0", "knobs": {}, "model": "random", "reward_mode": "sparse"}


def config(name="HiLo-v0", model="random", **settings):
    return RunConfig(task=registry.TASKS[name], model=model, **{"episodes": 4, **settings})


def play(cfg, out, store, **execution):
    """Plays a run with a store; returns which episodes were reused and which were played, and the summary."""
    seen = {"reused": [], "played": []}

    def note(record, run):
        seen["reused" if run is None else "played"].append((record["seed"], record["attempt"]))

    settings = settings_of(cfg.protocol(), cfg.task, cfg.knobs, {})
    _, summary = evaluate(
        cfg, out, lambda: make_policy(cfg.model), Execution(**execution), note, open_series=lambda: store.open(settings)
    )
    return seen["reused"], seen["played"], summary


def bytes_of(cfg, out):
    return (cfg.folder(out) / "results.jsonl").read_bytes()


def fresh(cfg, out):
    """Returns the bytes of a run that is played without a store."""
    evaluate(cfg, out, lambda: make_policy(cfg.model))
    return bytes_of(cfg, out)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "episodes").mkdir()
    return EpisodeStore(tmp_path / "episodes")


@pytest.fixture(scope="module")
def stored_records(tmp_path_factory):
    cfg = config(episodes=5)
    out = tmp_path_factory.mktemp("runs")
    evaluate(cfg, out, lambda: make_policy("random"))
    return records.read_results(cfg.folder(out) / "results.jsonl")


def filled(store, stored_records):
    series = store.open(SETTINGS)
    for record in stored_records:
        series.append(record)
    series.close()
    return series.path


def read(store, stored_records, settings=SETTINGS):
    """Returns what the store has of the records, by seed and attempt, and the number of ignored lines."""
    series = store.open(settings)
    expected = {(record["seed"], record["attempt"]) for record in stored_records}
    episodes = {(record["seed"], record["attempt"]): record for record, _ in series.read(expected)}
    series.close()
    return episodes, series.damaged


# ---- Reuse ----


def test_more_seeds_and_more_attempts_play_only_what_is_missing_and_give_the_same_bytes(tmp_path, store):
    reused, played, summary = play(config(episodes=2), tmp_path / "a", store)
    assert not reused and len(played) == 2 and "reused" not in summary
    reused, more, summary = play(config(episodes=4), tmp_path / "b", store)
    assert sorted(reused) == sorted(played) and len(more) == 2 and not set(more) & set(played)
    assert summary["reused"]["episodes"] == 2
    reused, third, _ = play(config(episodes=4, attempts=2), tmp_path / "c", store)
    assert sorted(reused) == sorted(played + more) and {attempt for _, attempt in third} == {1}
    for cfg, name in ((config(episodes=4), "b"), (config(episodes=4, attempts=2), "c")):
        assert bytes_of(cfg, tmp_path / name) == fresh(cfg, tmp_path / "fresh")


def test_a_run_of_other_seeds_shares_the_common_ones(tmp_path, store):
    play(config(episodes=3), tmp_path / "a", store)
    reused, played, _ = play(config(episodes=3, seed=1), tmp_path / "b", store)
    assert len(reused) == 2 and len(played) == 1


@pytest.mark.parametrize(
    "change", [{"model": "expert"}, {"reward_mode": "dense"}, {"max_turns": 3}, {"knobs": {"size": 8}}]
)
def test_another_policy_or_protocol_reuses_nothing(tmp_path, store, change):
    play(config(), tmp_path / "a", store)
    cfg = config(**change)
    reused, played, _ = play(cfg, tmp_path / "b", store)
    assert not reused and len(played) == 4
    assert bytes_of(cfg, tmp_path / "b") == fresh(cfg, tmp_path / "fresh")


def test_broken_episodes_are_never_stored(tmp_path, store):
    cfg = config("Faulty-v0", "expert", episodes=6, knobs={"how": "raise"})
    _, played, summary = play(cfg, tmp_path / "a", store)
    assert summary["broken"] == 2 and len(played) == 6
    reused, again, _ = play(cfg, tmp_path / "b", store)
    assert len(reused) == 4 and len(again) == 2 and all(seed % 3 == 0 for seed, _ in again)


def test_a_resumed_run_takes_what_others_have_finished_meanwhile(tmp_path, store):
    cfg = config(episodes=6)
    interrupt(cfg, tmp_path / "a", 2)
    play(cfg, tmp_path / "other", store)
    reused, played, _ = play(cfg, tmp_path / "a", store, resume=True)
    assert len(reused) == 4 and not played
    assert bytes_of(cfg, tmp_path / "a") == fresh(cfg, tmp_path / "fresh")


def interrupt(cfg, out, count):
    """Plays a run until `count` episodes are in its journal."""
    ended = []

    def stop(record, run):
        ended.append(record)
        if len(ended) == count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(cfg, out, lambda: make_policy(cfg.model), on_episode=stop)


# ---- Accounting ----


class Paid:
    """The expert, at a price."""

    name = advice_kind = "expert"
    deterministic = True

    def __init__(self):
        self.policy = make_policy("expert")

    def act(self, prompts):
        replies = self.policy.act(prompts)
        for reply in replies:
            reply.input_tokens, reply.output_tokens, reply.cost = 90, 10, 0.5
        return replies

    def close(self):
        pass


def test_reused_episodes_cost_nothing_now_and_count_towards_no_budget(tmp_path, store):
    cfg = config(model="expert", episodes=4)
    settings = settings_of(cfg.protocol(), cfg.task, cfg.knobs, {})

    def run(episodes, name, **execution):
        own = config(model="expert", episodes=episodes)
        result = evaluate(own, tmp_path / name, Paid, Execution(**execution), open_series=lambda: store.open(settings))
        return own.folder(tmp_path / name), result[1]

    folder, first = run(3, "a")
    assert first["spent"]["cost"] == first["cost"] > 0
    folder, second = run(4, "b", budget=Budget(tokens=first["input_tokens"] + 1, cost=first["cost"]))
    assert second["cost"] > first["cost"], "the summary states what the episodes cost when they were played"
    assert second["spent"] == {name: second[name] - first[name] for name in ("input_tokens", "output_tokens", "cost")}
    assert len((folder / "timing.jsonl").read_text().splitlines()) == 1
    lines = [json.loads(line) for line in (folder / "reused.jsonl").read_text().splitlines()]
    assert len(lines) == 3 and {line["key"][0] for line in lines} == {"HiLo-v0"}
    budget = Budget(tokens=150).after(time.monotonic(), [second])
    assert budget.before[1] == second["spent"]["input_tokens"] + second["spent"]["output_tokens"]
    _, resumed = run(4, "b", resume=True)
    assert resumed["spent"] == second["spent"] and resumed["reused"] == second["reused"]


def test_a_crash_before_the_journal_counts_an_episode_as_played_when_it_is_played(tmp_path, store):
    cfg = config(model="expert", episodes=3)
    play(cfg, tmp_path / "a", store)
    reused, _, _ = play(cfg, tmp_path / "b", store)
    assert len(reused) == 3
    folder = cfg.folder(tmp_path / "b")
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:2]))
    with (folder / "reused.jsonl").open("a") as file:
        file.write('{"key": ["HiLo-')
    evaluate(cfg, tmp_path / "b", Paid, Execution(resume=True))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["reused"]["episodes"] == 2 and summary["spent"]["cost"] == summary["cost"] > 0
    assert len((folder / "reused.jsonl").read_text().splitlines()) == 2


# ---- Files ----


def append_all(folder, lines, ready, go):
    series = EpisodeStore(Path(folder)).open(SETTINGS)
    ready.release()
    go.wait()
    for line in lines:
        series.append(json.loads(line))


def test_two_processes_may_store_at_once(store, stored_records):
    expected = [{**record, "attempt": number} for number in range(40) for record in stored_records]
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    halves = [list(map(json.dumps, expected[start::2])) for start in range(2)]
    processes = [
        context.Process(target=append_all, args=(str(store.folder), half, ready, go), daemon=True) for half in halves
    ]
    for process in processes:
        process.start()
    for _ in processes:
        assert ready.acquire(timeout=120)
    go.set()
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    episodes, damaged = read(store, expected)
    assert len(episodes) == len(expected) and not damaged
    assert all(episodes[record["seed"], record["attempt"]] == record for record in expected)


WRITER = """
import json, sys
from pathlib import Path
from harness.episodes.store import EpisodeStore
settings, record = json.loads(sys.argv[2]), json.loads(sys.argv[3])
series = EpisodeStore(Path(sys.argv[1])).open(settings)
for attempt in range(10**6):
    series.append({**record, "attempt": attempt})
    print(attempt, flush=True)
"""


def test_a_process_that_is_killed_loses_at_most_the_episode_in_flight(store, stored_records):
    command = [sys.executable, "-c", WRITER, str(store.folder), json.dumps(SETTINGS), json.dumps(stored_records[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        for line in process.stdout:
            if int(line) >= 200:
                process.send_signal(signal.SIGKILL)
                break
        printed = [int(line)] + [int(line) for line in process.stdout if line.endswith("\n")]
    expected = [{**stored_records[0], "attempt": attempt} for attempt in range(printed[-1] + 2)]
    episodes, _ = read(store, expected)
    assert len(episodes) >= printed[-1] + 1


def test_an_unfinished_line_hides_no_other_episode(store, stored_records):
    path = filled(store, stored_records)
    content = path.read_bytes()
    last = content.rindex(b"\n", 0, len(content) - 1) + 1
    for cut in range(last, len(content), 97):
        path.write_bytes(content[:cut])
        extra = {**stored_records[0], "attempt": 7}
        series = store.open(SETTINGS)
        series.append(extra)
        series.close()
        episodes, damaged = read(store, [*stored_records, extra])
        assert len(episodes) == len(stored_records) and (0, 7) not in episodes
        assert episodes[extra["seed"], 7] == extra and damaged <= 1


def test_a_damaged_byte_never_changes_an_episode(store, stored_records):
    path = filled(store, stored_records)
    expected, _ = read(store, stored_records)
    content = path.read_bytes()
    start = content.index(b"\n") + 1
    chooser = random.Random(0)
    for _ in range(150):
        place = chooser.randrange(start, len(content))
        path.write_bytes(content[:place] + bytes([chooser.randrange(256)]) + content[place + 1 :])
        episodes, _ = read(store, stored_records)
        assert len(episodes) >= len(expected) - 2
        assert all(expected[key] == record for key, record in episodes.items())


def test_a_series_with_a_damaged_header_is_left_alone(store, stored_records):
    path = filled(store, stored_records)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"sparse"', b'"dense!"', 1))
    episodes, _ = read(store, stored_records)
    assert not episodes and path.exists()
    assert store.open(SETTINGS).path != path


def test_episodes_of_another_user_or_another_series_are_ignored(tmp_path, store, stored_records):
    path = filled(store, stored_records)
    (tmp_path / "other").mkdir()
    stranger = EpisodeStore(tmp_path / "other")
    forged = [{**record, "success": True, "reward": 1.0} for record in stored_records]
    path.write_bytes(filled(stranger, forged).read_bytes())
    assert read(store, stored_records)[0] == {}, "a whole file of a stranger"
    path = filled(store, stored_records[:2])
    line = filled(stranger, forged).read_bytes().splitlines(keepends=True)[-1]
    with path.open("ab") as file:
        file.write(line)
    episodes, damaged = read(store, stored_records)
    assert set(episodes) == {(record["seed"], record["attempt"]) for record in stored_records[:2]} and damaged == 1
    expert = {**SETTINGS, "model": "expert"}
    series = store.open(expert)
    series.close()
    with series.path.open("ab") as file:
        file.writelines(path.read_bytes().splitlines(keepends=True)[1:])
    assert read(store, stored_records, expert)[0] == {}, "lines of another series"


def test_an_episode_that_does_not_fit_its_series_is_ignored(store, stored_records):
    series = store.open(SETTINGS)
    good, *more = stored_records
    series.append(good)
    for change in ({"model": "expert"}, {"task": "Slow-v0"}, {"reward_mode": "dense"}, {"knobs": {"size": 8}}):
        series.append({**more[0], **change})
    series.append({**more[1], "steps": 3})
    series.append({**more[2], "stop_reason": "broken"})
    series.close()
    episodes, damaged = read(store, stored_records)
    assert list(episodes.values()) == [good] and damaged == 5


def test_a_line_that_unpacks_to_more_than_a_record_may_hold_is_ignored(store, stored_records, monkeypatch):
    path = filled(store, stored_records)
    series = store.open(SETTINGS)
    monkeypatch.setattr(records, "dump", lambda record: b" " * 2**26)
    series.append({**stored_records[0], "attempt": 3})
    series.close()
    assert path.stat().st_size < 2**20 and len(zlib.compress(b" " * 2**26)) < 2**18
    episodes, damaged = read(store, [{**stored_records[0], "attempt": 3}])
    assert not episodes and damaged == 1


def test_a_damaged_key_is_named(store, stored_records):
    filled(store, stored_records)
    (store.folder / "key").write_bytes(b"short")
    with pytest.raises(DataError, match="damaged: remove"):
        store.open(SETTINGS)


def test_the_key_is_readable_by_its_user_only(store):
    store.open(SETTINGS).close()
    assert (store.folder / "key").stat().st_mode & 0o077 == 0


def test_a_full_disk_stops_the_storing_but_not_the_run(tmp_path, store):
    cfg = config()
    settings = settings_of(cfg.protocol(), cfg.task, cfg.knobs, {})

    def full():
        series = store.open(settings)
        os.close(series._file)
        series._file = os.open("/dev/full", os.O_WRONLY)
        return series

    with pytest.warns(UserWarning, match=r"cannot be written \(No space left on device\)"):
        _, summary = evaluate(cfg, tmp_path / "a", lambda: make_policy("random"), open_series=full)
    assert summary["episodes"] == 4 and [info.episodes for info in store.list()] == [0]


# ---- Settings ----


def test_a_change_of_the_environments_code_or_data_reuses_nothing(tmp_path, monkeypatch):
    (tmp_path / "puzzle_box").mkdir()
    code = tmp_path / "puzzle_box" / "__init__.py"
    code.write_text("from examples.hilo import HiLo\nclass Puzzle(HiLo): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = registry.Task(id="Puzzle-v0", entry_point="puzzle_box:Puzzle")

    def settings():
        settings_module._package_digest.cache_clear()
        return settings_of({"model": "random", "task": task.id}, task, {}, {})

    first = settings()
    assert first == settings()
    (tmp_path / "puzzle_box" / "levels.json").write_text("[]")
    second = settings()
    assert second != first
    code.write_text("from examples.hilo import HiLo\nclass Puzzle(HiLo): harder = True\n")
    assert settings() not in (first, second)


def test_code_that_an_environment_may_import_counts_and_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "crate_box.py").write_text(
        "from examples.hilo import HiLo\nclass Crate(HiLo):\n    def help(self):\n        import crate_script\n"
    )
    script = tmp_path / "crate_script.py"
    script.write_text("raise SystemExit('run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = registry.Task(id="Crate-v0", entry_point="crate_box:Crate")

    def settings():
        settings_module._package_digest.cache_clear()
        return settings_of({"model": "random", "task": task.id}, task, {}, {})

    first = settings()
    assert first is not None and settings_module._local_packages("crate_box") >= {"crate_script", "examples"}
    script.write_text("raise SystemExit('run again')\n")
    assert settings() not in (None, first)
    assert "crate_script" not in sys.modules


def test_a_file_that_a_knob_names_is_part_of_the_settings(tmp_path):
    file = tmp_path / "held"
    task = registry.TASKS["Holding-v0"]

    def settings():
        return settings_of({"model": "random", "task": task.id}, task, {"held": str(file)}, {})["files"]

    assert settings() == {}
    file.write_text("a")
    first = settings()
    file.write_text("b")
    assert first and settings() != first


def test_a_model_is_identified_by_its_files_and_a_served_one_by_name_and_server(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(3 * 2**20))
    first = identity(str(tmp_path), {})
    assert first == identity(str(tmp_path), {}) and "torch" in first["packages"]
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "other"}')
    second = identity(str(tmp_path), {})
    weights = bytearray(3 * 2**20)
    weights[2**20 + 5] = 1  # in the middle
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert len({json.dumps(values) for values in (first, second, identity(str(tmp_path), {}))}) == 3
    assert identity("random", {}) == {}
    served = [identity("m", {"base_url": url}) for url in ("http://u:secret@a/v1", "http://a", "http://b")]
    assert served[0] == served[1] != served[2] and "secret" not in str(served)
    weights = [
        RunConfig(registry.TASKS["HiLo-v0"], f"{kind}{tmp_path}").identity()["weights"] for kind in ("", "openai:")
    ]
    assert weights[0] and not weights[1], "a folder with the name of a served model is not what the server holds"


def test_a_server_with_other_weights_gets_a_series_of_its_own(store, stored_records):
    answers = [Fingerprint("", "a b", (("a", logprob), ("b", -0.9))) for logprob in (-0.1, -0.15)]
    paths = []
    for answer in answers:
        series = store.open(SETTINGS, answer)
        series.append(stored_records[0])
        series.close()
        paths.append(series.path)
    assert len(set(paths)) == 2
    assert store.open(SETTINGS, answers[0]).path == paths[0], "the first weights are served again"
    noisy = Fingerprint("", "a b", (("a", -0.101), ("b", -0.9)))
    assert store.open(SETTINGS, noisy).path == paths[0]
    assert not read(store, stored_records)[0], "weights that nobody watches are others"


def test_playing_anew_hides_what_was_stored_before(store, stored_records):
    filled(store, stored_records)
    series = store.open(SETTINGS, anew=True)
    series.append(stored_records[0])
    series.close()
    assert len(read(store, stored_records)[0]) == 1


# ---- Listing and pruning ----


def test_prune_removes_old_series_then_the_least_recently_used_ones(store, stored_records):
    paths = []
    for age, name in ((300, "a"), (200, "b"), (100, "c")):
        series = store.open({**SETTINGS, "model": name})
        series.append(stored_records[0])
        series.close()
        os.utime(series.path, (time.time() - age, time.time() - age))
        paths.append(series.path)
    assert [info.settings["model"] for info in store.list()] == ["c", "b", "a"]
    assert {info.episodes for info in store.list()} == {1}
    assert store.prune(most_seconds=250)[0] == 1 and not paths[0].exists()
    assert store.prune(most_bytes=paths[2].stat().st_size)[0] == 1 and not paths[1].exists()
    assert store.prune(most_seconds=250, most_bytes=2**30) == (0, 0) and paths[2].exists()


def test_the_cache_command_lists_and_prunes_episodes(tmp_path, monkeypatch, capsys, stored_records):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))

    def cache(*words):
        with pytest.raises(SystemExit) as ended:
            cache_cli.main(words)
        return ended.value.code, capsys.readouterr()

    filled(EpisodeStore(), stored_records)
    code, output = cache("episodes")
    assert code == 0 and "HiLo-v0" in output.out and "random" in output.out and " 5 " in output.out
    assert cache("prune")[0] == 2 and cache("prune", "--max-mb", "-1")[0] == 2
    assert "removed 0 series" in cache("prune", "--unused-days", "1")[1].out
    assert "removed 1 series" in cache("prune", "--max-mb", "0")[1].out
    assert EpisodeStore().list() == []


# ---- The command line ----


@pytest.fixture
def evaluates(tmp_path, monkeypatch, capsys):
    """Returns a function that runs envsuite-eval and an empty cache: it returns exit code, row and messages."""
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENVSUITE_REUSE", "")

    def run(out, *words):
        base = [
            "-m",
            "random",
            "-e",
            "HiLo",
            "--baselines",
            "none",
            "--num-workers",
            "0",
            "--json",
            "-o",
            str(tmp_path / out),
        ]
        with pytest.raises(SystemExit) as ended:
            eval_cli.main([*base, *words])
        output = capsys.readouterr()
        rows = json.loads(output.out)[0]["rows"]["random"] if output.out else None
        return ended.value.code, rows, output.err

    return run


def test_the_command_reuses_by_default_says_so_and_can_play_anew(tmp_path, evaluates):
    _, summary, text = evaluates("a", "-n", "2")
    assert "reused" not in summary and "reused" not in text
    _, summary, text = evaluates("b", "-n", "3")
    assert summary["reused"]["episodes"] == 2 and "random: 2 of 3 episodes were reused" in text
    _, summary, text = evaluates("c", "-n", "3", "--reuse", "new")
    assert "reused" not in summary and len(EpisodeStore().list()) == 2
    files = [next((tmp_path / name).rglob("results.jsonl")).read_bytes() for name in "bc"]
    assert files[0] == files[1]


def test_an_interrupted_run_that_plays_anew_continues_its_own_series(tmp_path, evaluates):
    evaluates("a", "-n", "4")
    code, _, _ = evaluates("b", "-n", "4", "--reuse", "new", "--max-time", "0.000001")
    assert code == 3
    _, summary, _ = evaluates("b", "-n", "4", "--reuse", "new", "--resume")
    assert summary["episodes"] == 4 and "reused" not in summary
    assert [info.episodes for info in EpisodeStore().list()] == [4, 4]


def test_off_neither_reuses_nor_stores(tmp_path, evaluates):
    evaluates("a", "-n", "2", "--reuse", "off")
    assert not (tmp_path / "cache" / "episodes").exists()


def test_an_unusable_store_is_named_and_the_run_is_played(tmp_path, evaluates, monkeypatch):
    (tmp_path / "cache" / "episodes").mkdir(parents=True)
    (tmp_path / "cache" / "episodes" / "key").write_text("short")
    _, summary, text = evaluates("a", "-n", "2")
    assert summary["episodes"] == 2 and "neither reused nor stored" in text
    monkeypatch.setenv("ENVSUITE_REUSE", "yes")
    code, _, text = evaluates("b")
    assert code == 2 and "ENVSUITE_REUSE is 'yes'" in text
