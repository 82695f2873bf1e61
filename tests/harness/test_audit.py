"""The audit board: its checkpoints, cost and commands, and a run with a stand-in that is continued."""

import re

import pytest

from harness.audit import board
from harness.audit.command import main
from harness.capacity import predict, profile
from harness.cli.eval import parser as eval_parser
from harness.prompting import protocols
from harness.suites import suites


def call(*words, capfd):
    """Runs `envsuite-audit`; returns its exit status, output and error."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return (ended.value.code or 0, *capfd.readouterr())


def test_every_checkpoint_names_its_source_prompt_suites_and_numbers():
    listed = board.checkpoints()
    assert len(listed) == len({checkpoint.model for checkpoint in listed}) >= 10
    for checkpoint in listed:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", checkpoint.model)
        assert checkpoint.seen_at.startswith("https://")
        assert checkpoint.prompt
        assert set(checkpoint.published) <= set(checkpoint.suites)
        assert all(0 < number < 1 for number in checkpoint.published.values())
        for suite in checkpoint.suites:
            assert suites.suite(suite)["protocol"] == checkpoint.protocol or not checkpoint.protocol
        assert not checkpoint.protocol or checkpoint.protocol in protocols.names()


def test_a_dry_run_prints_every_checkpoint_its_command_and_the_whole_cost(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    code, output, _ = call("-o", tmp_path / "runs", capfd=capfd)
    assert code == 0
    for entry in board.entries():
        assert entry.checkpoint.model in output
        if entry.runnable:
            words = entry.command(tmp_path / "runs")
            assert f"envsuite-eval {' '.join(words)}" in output
            assert eval_parser().parse_args(words).protocol == entry.checkpoint.protocol
    assert "million tokens read" in output.splitlines()[-1]
    assert "assumed, not measured" in output.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_costs_follow_the_profile_and_grow_with_games_and_attempts():
    (entry, *_) = board.entries(episodes=10)
    (more, *_) = board.entries(episodes=10, repeats=3)
    _, families = profile.load()
    short = predict.episode_volume(families["alfworld"], "expert", board.SHORTEST_REPLY, 2, 50)
    assert entry.cost().read[0] == pytest.approx(10 * short.read / 1e6)
    assert more.cost().written[1] == pytest.approx(3 * entry.cost().written[1])
    low, high = entry.cost().hours(1000, 10000)
    assert low == pytest.approx((entry.cost().read[0] / 10000 + entry.cost().written[0] / 1000) * 1e6 / 3600)
    assert low < high


def test_fewer_games_and_neutral_words_are_not_compared_with_the_published_number(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))  # without published words
    few, every = board.entries(episodes=5)[0], board.entries()[0]
    assert board._obstacle(few) == "5 of 140 games"
    assert board._obstacle(every) == "neutral words"


def test_the_error_of_the_published_number_counts_too():
    assert board.difference(0.84, 0.908, 140).endswith("no difference is shown")  # our interval alone ends at 0.89
    assert board.difference(0.50, 0.908, 140).startswith("-40.8 points [")
    assert board.difference(0.50, 0.908, 140).endswith("they differ")


def test_a_run_without_its_games_fails_in_one_line_and_the_board_is_still_printed(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    words = ["--run", "--only", "GiGPO-Qwen2.5", "-m", "random", "-n", 1, "-o", tmp_path / "runs"]
    code, output, error = call(*words, capfd=capfd)
    assert code == 1
    assert "measured   not run: " in output
    assert "does not contain json_2.1.1/valid_seen" in error.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_a_stand_in_plays_once_for_all_checkpoints_and_is_named_as_one(shared, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(shared / "data" / "alfworld"))
    words = ["--run", "--only", "GiGPO", "-m", "random", "-n", 2, "-o", tmp_path / "runs"]
    code, output, _ = call(*words, capfd=capfd)
    assert code == 0, output
    assert output.count("by random, a stand-in, which says nothing about the checkpoint") == 2
    (journal,) = (tmp_path / "runs").glob("*/*/journal.jsonl")
    whole = journal.read_bytes()
    assert len(whole.splitlines()) == 2
    assert call(*words, capfd=capfd)[0] == 0
    assert journal.read_bytes() == whole


def test_an_evaluation_that_fails_does_not_stop_the_others(shared, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(shared / "data" / "alfworld"))
    (tmp_path / "runs").write_text("a file in place of the folder")
    words = ["--run", "--only", "GiGPO-Qwen2.5", "-m", "random", "-n", 1, "-o", tmp_path / "runs"]
    code, output, error = call(*words, capfd=capfd)
    assert code == 1
    assert "total: 1 checkpoints" in output
    assert "ended with exit status 2; its message is above" in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--only", "nothing"], "No checkpoint has nothing"), (["-n", "0"], "--episodes"), (["-r", "0"], "--repeats")],
)
def test_wrong_flags_end_in_one_line(words, message, capfd):
    code, _, error = call(*words, capfd=capfd)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
