"""Leaderboards: pages are rendered from records, and the check finds forged or stale boards."""

import gzip
import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness import records
from harness.cli.boards import main as make_boards
from harness.cli.replay import main as envsuite_replay
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.prompting import protocols
from harness.provenance import replay
from harness.suites import leaderboard_pages, leaderboards
from harness.suites.plan import prescribed

ROOT = Path(__file__).resolve().parents[2] / "leaderboards"
FOLDERS = leaderboard_pages.folders(ROOT)
named = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_the_committed_pages_are_rendered_from_the_committed_records():
    for path, text in leaderboard_pages.pages(ROOT).items():
        assert path.read_bytes() == text.encode(), f"{path} does not match its records: make leaderboards"
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 24 * 2**20


@named
def test_every_committed_board_is_complete_and_follows_its_suite(folder):
    assert list(leaderboards.faults(leaderboards.read(folder))) == []


APART = {
    "poad-datasci",
    "guide-textworld",
    "guide-density",
    "balrog-textworld",
    "swegym-mined-lite",
    "swegym-mined-small",
}
"""Boards whose games all run in separate processes or sandboxes: the slow test replays them."""


@named
def test_the_first_record_of_every_fast_entry_replays(folder, tmp_path):
    """Replays one record per entry of the fast engines; the slow test below replays all records."""
    board = leaderboards.read(folder)
    quick = [place for place in board.entries if not registry.env_class(registry.TASKS[place[0]]).isolate]
    first = [board.of(place)[0] for place in quick]
    (tmp_path / "results.jsonl").write_bytes(b"".join(map(records.dump, first)))
    verdicts = list(replay.check(tmp_path / "results.jsonl", num_workers=0))
    assert len(verdicts) == len(first)
    assert (first == []) == (folder.name in APART)
    assert [verdict.difference for verdict in verdicts if verdict.difference] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)  # SWE-Gym's episodes take seconds each
@named
def test_every_committed_record_replays(folder):
    verdicts = list(replay.check(records.results_file(folder)))
    assert len(verdicts) == len(leaderboards.read(folder).records)
    assert [verdict.difference for verdict in verdicts if verdict.difference] == []


@pytest.fixture
def board(tmp_path):
    """Returns a board with two real Overcooked entries of three games each."""
    folder = tmp_path / "overcooked"
    add(folder, tmp_path / "runs", "random", "expert")
    return folder


def add(folder, runs, *names, **settings):
    run_folders = []
    for name in names:
        task = registry.TASKS["Overcooked-tomato_salad-v0"]
        config = RunConfig(task, name, episodes=3, **settings)
        evaluate(config, runs, lambda name=name: make_policy(name))
        run_folders.append(config.folder(runs))
    return leaderboards.add(folder, run_folders)


def test_a_valid_board_passes_and_its_page_lists_every_entry(board, capsys):
    with pytest.raises(SystemExit) as stop:
        envsuite_replay(["--check", str(board)])
    assert stop.value.code == 0
    assert "6 episodes replayed the same, 0 differ" in capsys.readouterr().out
    page = leaderboard_pages.page(leaderboards.read(board))
    assert page.index("| expert | 100.0") < page.index("| random |")


def change(folder, forge):
    lines = records.read_results(folder / "results.jsonl")
    forge(lines)
    (folder / "results.jsonl").write_bytes(b"".join(map(records.dump, lines)))


def win(lines):
    victim = next(record for record in lines if record["model"] == "random")
    victim.update(success=not victim["success"])


def swap(lines):
    """Swaps the model names of the expert's and the random player's records; the games still replay."""
    for record in lines:
        record["model"] = {"expert": "random", "random": "expert"}[record["model"]]


def stop_early(record):
    record["steps"] = record["steps"][:2]
    record.update(stop_reason="max_turns", num_turns=2, success=False, truncated=True, terminated=False)


def valid(lines):
    """Removes all faults, as if every command of the random player had been valid."""
    for record in lines:
        record["steps"] = [{**step, "fault": ""} for step in record["steps"]]
        record["faults"] = dict.fromkeys(record["faults"], 0)


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (win, "success: stored"),
        (lambda lines: lines[0]["steps"][0].update(observation="as it was last year"), "turn 1, observation"),
        (lambda lines: lines.pop(), "is missing, 1 episodes in all"),
        (lambda lines: lines.append(dict(lines[0])), "an episode is there twice"),
        (lambda lines: lines.append({**lines[0], "seed": 7}), "seed 7 does not belong to the entry"),
        (lambda lines: lines[0].update(model="mine"), "mine on Overcooked-tomato_salad-v0: records without an entry"),
        (lambda lines: lines[0].update(stop_reason="broken"), "broken episodes"),
        (lambda lines: stop_early(lines[0]), "was stopped after 2 turns, the entry's cap is None"),
        (lambda lines: lines[0].update(reward_mode="dense"), "records of another reward mode"),
        (swap, "turn 1, commands: stored ["),
        (lambda lines: valid(lines), "turn 3, fault: stored '', replayed 'invalid'"),
    ],
)
def test_a_forged_or_stale_record_is_found(board, forge, message, capsys):
    change(board, forge)
    with pytest.raises(SystemExit) as stop:
        envsuite_replay(["--check", str(board)])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


def test_changed_protocol_in_the_metadata_is_found(board):
    path = board / "metadata.json"
    path.write_text(path.read_text().replace('"max_turns": null', '"max_turns": 5', 1))
    faults = "; ".join(leaderboards.faults(leaderboards.read(board)))
    assert "is not the hash of the entry's identity" in faults
    assert "max_turns is 5, and suite 'overcooked' fixes None" in faults


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"run_id"', '"id"'),
        ('"seeds"', '"games"'),
        ('"attempts": 1', '"attempts": "1"'),
        ('"max_turns": null', '"max_turns": []'),
    ],
)
def test_invalid_metadata_raises_a_one_line_error(board, old, new, capsys):
    path = board / "metadata.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SystemExit) as stop:
        envsuite_replay(["--check", str(board)])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and "metadata.json is not a board's metadata" in error and error.count("\n") == 1


def test_a_huge_number_of_claimed_attempts_is_rejected_at_once(board):
    rename(board, "expert", attempts=10**12)
    assert any(
        "1000000000000 attempts per game, but only 3 records" in fault
        for fault in leaderboards.faults(leaderboards.read(board))
    )


def rename(folder, name, **claims):
    """Renames the expert's entry and records, and computes a matching run_id."""
    metadata = json.loads((folder / "metadata.json").read_text())
    (entry,) = [row for row in metadata["entries"] if row["identity"]["model"] == "expert"]
    entry["identity"] |= {"model": name, **claims}
    spelled = json.dumps(entry["identity"], sort_keys=True)
    entry["run_id"] = hashlib.sha256(spelled.encode()).hexdigest()[:12]
    (folder / "metadata.json").write_text(json.dumps(metadata))
    change(folder, lambda lines: [record.update(model=name) for record in lines if record["model"] == "expert"])


def test_expert_records_under_a_models_name_are_found(board):
    rename(board, "gpt-9")
    faults = list(leaderboards.faults(leaderboards.read(board)))
    assert any("gpt-9 on Overcooked-tomato_salad-v0: sampling is None, and suite" in fault for fault in faults)
    assert any("prompting is None" in fault for fault in faults)
    assert any("a model's record cannot have 0 prompt tokens and 0 reply tokens" in fault for fault in faults)


def test_a_model_entry_needs_its_full_protocol_and_its_commands_in_its_replies(board):
    (config,) = [
        entry.config
        for place, entry in leaderboards.prescribed("overcooked").items()
        if place[0] == "Overcooked-tomato_salad-v0"
    ]
    sampling, prompting = asdict(config.sampling), asdict(config.prompting)
    del sampling["temperature"], prompting["wording"]  # the plain wording is not stored
    rename(board, "gpt-9", sampling=sampling, prompting=prompting)

    def add_tokens(lines):
        for record in lines:
            if record["model"] == "gpt-9":
                record.update(input_tokens=9, output_tokens=9)

    change(board, add_tokens)
    faults = list(leaderboards.faults(leaderboards.read(board)))
    assert len(faults) == 2
    assert "temperature is None, and suite 'overcooked' fixes 0.4" in faults[0]
    assert "turn 1: the commands [" in faults[1] and "are not in the reply" in faults[1]


def test_a_run_with_another_protocol_is_not_added(board, tmp_path):
    before = (board / "metadata.json").read_bytes(), (board / "results.jsonl").read_bytes()
    with pytest.raises(UsageError, match="max_turns is 4, and suite 'overcooked' fixes None"):
        add(board, tmp_path / "runs", "random", max_turns=4)
    assert ((board / "metadata.json").read_bytes(), (board / "results.jsonl").read_bytes()) == before


@pytest.mark.parametrize(
    ("protocol", "words", "fault"),
    [
        ("balrog", "published", ""),
        ("balrog", "neutral", ""),
        ("balrog", "0" * 12, "words is '000000000000'"),
        ("verlog", "neutral", "protocol is 'verlog', and suite 'balrog-babyai' has 'balrog'"),
    ],
)
def test_an_entry_may_have_the_suites_published_prompt_in_pinned_or_neutral_words(protocol, words, fault):
    (key, run), *_ = prescribed("balrog-babyai", "balrog").items()
    identity = replace(run.config, model="org/model").identity()
    identity["prompting"] |= {
        "protocol": protocol,
        "words": protocols.load("balrog").published_id if words == "published" else words,
    }
    run_id = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    entries = {(*key, "org/model"): {"run_id": run_id, "identity": identity}}
    wrong = [
        text
        for text in leaderboards.faults(leaderboards.Board("balrog-babyai", entries, []))
        if "only 0 records" not in text
    ]
    assert [fault in text for text in wrong] == ([True] if fault else []), wrong


def test_large_boards_are_gzipped_and_small_ones_are_not(board, tmp_path, monkeypatch, capsys):
    plain = (board / "results.jsonl").read_bytes()

    def again():
        leaderboards.add(board, list((tmp_path / "runs").glob("*/*")))

    monkeypatch.setattr(leaderboards, "LARGE", 100)
    again()
    packed = (board / "results.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == plain and not (board / "results.jsonl").exists()
    again()
    assert (board / "results.jsonl.gz").read_bytes() == packed
    with pytest.raises(SystemExit) as stop:
        envsuite_replay(["--check", str(board)])
    assert stop.value.code == 0 and "6 episodes replayed the same, 0 differ" in capsys.readouterr().out
    monkeypatch.undo()
    again()
    assert (board / "results.jsonl").read_bytes() == plain and not (board / "results.jsonl.gz").exists()


def test_a_newer_run_replaces_the_older_one(board, tmp_path):
    shutil.rmtree(tmp_path / "runs")
    updated = add(board, tmp_path / "runs", "random", attempts=2)
    assert len(updated.entries) == 2
    assert sum(record["model"] == "random" for record in updated.records) == 6
    assert json.loads((board / "metadata.json").read_text())["schema_version"] == leaderboards.SCHEMA


def test_a_model_name_is_escaped_in_the_table(board):
    contents = leaderboards.read(board)
    place = next(iter(contents.entries))
    evil = (place[0], place[1], "<b>|`")
    entry = {"run_id": "x", "identity": {**contents.entries[place]["identity"], "model": evil[2]}}
    mine = [{**record, "model": evil[2]} for record in contents.of(place)]
    page = leaderboard_pages.page(leaderboards.Board(contents.suite, {evil: entry}, mine))
    (row,) = [line for line in page.splitlines() if "&lt;b&gt;" in line]
    assert row.startswith("| &lt;b&gt;\\|\\` |") and "<b>" not in row


def only(monkeypatch, suite, *names):
    """Restricts a suite to the tasks whose ids contain one of the names, to keep a test short."""
    prescribed = leaderboards.prescribed(suite)
    few = {place: entry for place, entry in prescribed.items() if any(name in place[0] for name in names)}
    monkeypatch.setattr(leaderboards, "prescribed", lambda suite, *more: few)


def test_missing_entries_play_as_many_episodes_as_existing_entries(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "overcooked"
    add(folder, tmp_path / "runs", "random")
    only(monkeypatch, "overcooked", "tomato_salad")
    with pytest.raises(SystemExit) as stop:
        make_boards(["play", "--missing", str(folder)])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert "Overcooked-tomato_salad-v0 expert: 3 episodes" in output and "random" not in output
    assert {place[2] for place in leaderboards.read(folder).entries} == {"random", "expert"}


def test_a_task_with_missing_data_is_named_and_the_others_are_played(tmp_path, monkeypatch, capsys):
    only(monkeypatch, "poad-datasci", "pharyngitis", "balance-scale")
    with pytest.raises(SystemExit) as stop:
        make_boards(["play", "-n", "1", str(tmp_path / "poad-datasci")])
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert "DataSciCoding-pharyngitis-v0 expert: not played: pharyngitis is not on this machine" in output
    assert {place[0] for place in leaderboards.read(tmp_path / "poad-datasci").entries} == {
        "DataSciCoding-balance-scale-v0"
    }
