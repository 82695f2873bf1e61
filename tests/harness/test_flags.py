"""Flags of the commands reach what they are for; each is called as a user calls it."""

import json
import re
from pathlib import Path

import pytest

from envsuite.cache import cache_dir, write_atomically
from harness import __main__ as envsuite
from harness.cli import (
    boards,
    cache,
    check,
    compare,
    data,
    envs,
    eval,
    generalize,
    play,
    report,
    table,
)
from tests import toys  # noqa: F401
from tests.api.server import running


def call(main, words, capsys) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    output = capsys.readouterr()
    return stop.value.code or 0, output.out, output.err


def played(folder: Path, capsys, *words) -> list[dict]:
    """The records of the random player on one game of HiLo."""
    code, _, error = call(
        eval.main,
        ["-m", "random", "-e", "HiLo-v0", "-n", "1", "--max-turns", "2", "--num-workers", "0", "-o", folder, *words],
        capsys,
    )
    assert code == 0, error
    (results,) = folder.glob("HiLo-v0--random/*/results.jsonl")
    return [json.loads(line) for line in results.read_text().splitlines()]


def test_repeats_play_every_game_so_many_times(tmp_path, capsys):
    assert [record["attempt"] for record in played(tmp_path, capsys, "-r", "2")] == [0, 1]


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--top-p", "0.25"], "top_p=0.25"),
        (["--normalisation", "token", "--action-mode", "score"], "normalisation='token'"),
        (["--history-reasoning", "2"], "history_reasoning=2"),
        (["--prompt-wording", "synonyms"], "wording='synonyms'"),
    ],
)
def test_settings_of_prompts_and_sampling_are_in_the_plan(words, setting, capsys):
    model = ["-m", "some-model", "--base-url", "http://localhost:9/v1"]
    code, output, _ = call(eval.main, [*model, "-e", "HiLo-v0", "-n", "1", "--dry-run", *words], capsys)
    assert code == 0 and setting in output


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--requests-per-minute", "-1"]])
def test_limits_of_requests_reach_the_policy(words, tmp_path, capsys):
    with running() as server:
        code, _, error = call(
            eval.main, ["-m", "m", "-e", "HiLo-v0", "-n", "1", "--base-url", server.url, "-o", tmp_path, *words], capsys
        )
    assert code == 2 and f"error: {words[0]} must be above 0" in error and not server.requests
    assert not list(tmp_path.iterdir()), "the failed start leaves no folder"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "foo=1"], "error: HiLo-v0 has no knob 'foo'"),
        (["--seed", "-4"], "error: --seed must be at least 0, not -4"),
    ],
)
def test_a_wrong_setting_is_named_as_the_user_wrote_it(words, message, capsys):
    code, _, error = call(eval.main, ["-m", "random", "-e", "HiLo-v0", "--dry-run", *words], capsys)
    assert code == 2 and message in error


def test_an_address_without_a_model_is_refused(capsys):
    words = ["-m", "random", "-m", "expert", "-e", "HiLo-v0", "--base-url", "http://localhost:9/v1"]
    code, _, error = call(eval.main, [*words, "--dry-run"], capsys)
    assert code == 2 and "error: --base-url is the address of a model, and random, expert needs none" in error
    code, _, error = call(eval.main, [*words, "-m", "small", "--dry-run"], capsys)
    assert code == 0, error


@pytest.mark.parametrize("task", ["SWEGym-easy-v0", "DataSciCoding-easy-v0"])
def test_another_wording_is_refused_where_it_would_change_files_and_programs(task, capsys):
    words = ["-m", "small", "--base-url", "http://localhost:9/v1", "-e", task, "--dry-run"]
    code, _, error = call(eval.main, [*words, "--prompt-wording", "invented"], capsys)
    assert code == 2 and f"would change words in the files and programs of {task}" in error


def test_an_output_folder_that_is_a_file_is_named(tmp_path, capsys):
    file = tmp_path / "report.html"
    file.write_text("page")
    code, _, error = call(eval.main, ["-m", "random", "-e", "HiLo-v0", "-n", "1", "-o", file], capsys)
    assert code == 2 and f"error: {file} is a file, where a folder is needed" in error and file.read_text() == "page"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("/proc/absent", "/proc/absent is not there or cannot be made (No such file or directory): check the path"),
        ("/dev/null", "/dev/null is a file, where a folder is needed: name another folder"),
    ],
)
def test_an_output_folder_that_cannot_be_made_is_named_with_what_to_do(folder, message, capsys):
    code, _, error = call(eval.main, ["-m", "random", "-e", "HiLo-v0", "-n", "1", "-o", folder], capsys)
    assert code == 2 and f"error: {message}" in error


def test_a_prompt_in_neutral_words_says_so(capsys):
    words = ["-m", "m", "--base-url", "http://localhost:9/v1", "-e", "ALFWorld-generated-v0"]
    words += ["--show-prompt", "--protocol", "react"]
    code, output, error = call(eval.main, words, capsys)
    assert code == 0 and '"messages"' in output, error
    assert "react: these words are neutral ones" in error


def test_a_file_that_cannot_be_written_is_named_as_the_user_named_it(tmp_path):
    path = tmp_path / ("x" * 250)
    with pytest.raises(OSError, match="File name too long") as caught:
        write_atomically(path, "text")
    assert caught.value.filename == str(path)


def test_a_card_shows_knobs_levels_and_measured_difficulty(capsys):
    code, output, _ = call(envs.main, ["BabyAI-goto-v0", "--card"], capsys)
    assert code == 0 and "BabyAI-goto-v0" in output and "what it does" in output and "difficulty, measured" in output


def test_a_check_plays_only_the_first_games_of_a_panel(capsys):
    code, output, _ = call(check.main, ["--gold", "Instances", "--times", "1", "-n", "1"], capsys)
    assert code == 0 and "1 games, 0 to exclude" in output


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[Path]:
    """Runs of two players on the same games, with another reward mode each."""
    output = tmp_path_factory.mktemp("pair")
    for model, mode in (("random", "sparse"), ("expert", "dense")):
        with pytest.raises(SystemExit):
            eval.main(
                ["-m", model, "-e", "HiLo-v0", "-n", "30", "--max-turns", "2", "--set", "size=6", "--reward", mode,
                 "--num-workers", "0", "-o", str(output / model)]
            )  # fmt: skip
    return [next((output / model).glob(f"HiLo-v0--{model}/*")) for model in ("random", "expert")]


def test_runs_that_differ_in_a_setting_are_compared_only_if_it_is_allowed(pair, capsys):
    code, _, error = call(compare.main, pair, capsys)
    assert code == 2 and "reward_mode" in error
    assert call(compare.main, [*pair, "--allow", "reward_mode"], capsys)[0] == 0


def test_effect_level_and_power_change_the_number_of_games_needed(pair, capsys):
    def compared(*words) -> dict:
        code, output, _ = call(compare.main, [*pair, "--allow", "reward_mode", "--json", *words], capsys)
        assert code == 0
        (difference,) = json.loads(output)["differences"]
        return difference

    plain = compared()
    assert compared("--effect", "0.2")["needed"] < plain["needed"]
    assert compared("--power", "0.99")["needed"] > plain["needed"]
    wide, narrow = compared("--level", "0.001")["mean"], compared("--level", "0.3")["mean"]
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]


def test_runs_without_a_common_game_cannot_be_compared(tmp_path, capsys):
    for seed in (0, 1):
        played(tmp_path / str(seed), capsys, "--seed", seed)
    folders = [path.parent for path in tmp_path.glob("*/*/*/config.json")]
    code, _, error = call(compare.main, folders, capsys)
    assert code == 2 and "have no game in common" in error


def test_runs_of_different_games_are_compared_on_the_common_ones(tmp_path, capsys):
    for seed in (0, 1):
        played(tmp_path / str(seed), capsys, "--seed", seed, "-n", "3")
    folders = [path.parent for path in tmp_path.glob("*/HiLo-v0--random/*/config.json")]
    code, output, _ = call(compare.main, folders, capsys)
    assert code == 0 and "each pair is compared on the games that both played" in output
    _, output, _ = call(compare.main, [*folders, "--json"], capsys)
    assert [pair["games"] for pair in json.loads(output)["differences"]] == [2]


def test_a_report_has_its_title_and_can_mix_settings(pair, tmp_path, capsys):
    output = tmp_path / "report.html"
    words = [*pair, "-o", output, "--title", "Two <players>", "--replay", "0"]
    pages = []
    for more in ([], ["--allow", "reward_mode"]):
        code, _, error = call(report.main, [*words, *more], capsys)
        assert code == 0, error
        page = output.read_text()
        assert "<title>Two &lt;players&gt;</title>" in page
        pages.append(page)
    assert pages[0] != pages[1]


def test_pictures_of_a_report_fit_the_limit(tmp_path, capsys):
    words = ["-m", "random", "-e", "Overcooked-easy-v0", "-n", "1", "--max-turns", "2", "--num-workers", "0"]
    assert call(eval.main, [*words, "-o", tmp_path], capsys)[0] == 0
    sizes = []
    for megabytes in (0, 5):
        output = tmp_path / f"{megabytes}.html"
        code, _, error = call(report.main, [tmp_path, "-o", output, "--pictures", megabytes, "--replay", "1"], capsys)
        assert code == 0, error
        sizes.append(output.stat().st_size)
    assert sizes[0] + 1000 < sizes[1]


def test_a_table_reads_other_folders_of_runs_and_lists_studies(tmp_path, capsys):
    studies = Path(__file__).resolve().parents[2] / "leaderboards" / "training"
    code, output, _ = call(table.main, ["guide-10", "--runs", tmp_path, "--studies", studies, "--markdown"], capsys)
    plain = call(table.main, ["guide-10", "--runs", tmp_path, "--markdown"], capsys)
    assert code == plain[0] == 0 and output.startswith("### ") and output != plain[1] and "small trainings" in output


def test_the_pages_of_other_boards_are_rendered(tmp_path, capsys):
    code, output, _ = call(boards.main, ["render", "--root", tmp_path], capsys)
    assert code == 0 and (tmp_path / "README.md").exists() and str(tmp_path / "README.md") in output


def test_a_person_plays_under_a_name_and_not_under_a_players(tmp_path, capsys):
    code, _, error = call(play.main, ["HiLo-v0", "--player", "expert", "-o", tmp_path], capsys)
    assert code == 2 and "--player 'expert' is the name of a built-in player" in error


def test_a_cleared_cache_needs_yes_where_nobody_can_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    (cache_dir("games") / "one").touch()
    monkeypatch.setattr("sys.stdin", (tmp_path / "cache" / "games" / "one").open())
    code, _, error = call(cache.main, ["clear"], capsys)
    assert code == 2 and "add --yes" in error and (tmp_path / "cache" / "games").exists()
    assert call(cache.main, ["clear", "--yes"], capsys)[0] == 0 and not (tmp_path / "cache" / "games").exists()


def test_demonstrations_list_admissible_commands_on_request(tmp_path, capsys):
    texts = []
    for admissible in ("none", "latest"):
        file = tmp_path / f"{admissible}.jsonl"
        words = ["demos", "-e", "HiLo-v0", "-n", "1", "--num-workers", "0", "--admissible", admissible, "-o", file]
        assert call(data.main, words, capsys)[0] == 0
        texts.append(file.read_text())
    assert texts[0] != texts[1] and len(texts[1]) > len(texts[0])


def test_words_of_a_folder_are_for_published_prompts_alone(tmp_path, capsys):
    code, _, error = call(data.main, ["get", "alfworld", "--from", tmp_path], capsys)
    assert code == 2 and "--from is for prompts/NAME, not for alfworld" in error


def test_tasks_of_language_need_a_folder_that_exists(tmp_path, capsys):
    words = ["-m", "some-model", "--language", "agreement", "--language-tasks", tmp_path / "missing", "-o", tmp_path]
    code, _, error = call(generalize.main, words, capsys)
    assert code == 2 and "missing is no folder" in error


FAILING = {
    "eval": ["-m", "random", "-e", "no-such-task"],
    "envs": ["no-such-task"],
    "check": ["no-such-task"],
    "compare": ["nowhere", "nowhere"],
    "replay": ["--sandbox", "nowhere"],
    "report": ["nowhere"],
    "table": ["no-such-table"],
    "generalize": ["-m", "random", "-e", "no-such-task"],
    "play": ["no-such-task"],
    "new": ["Not A Name"],
    "models": ["get", "no/such/model"],
    "data": ["get", "no-such-data"],
    "cache": ["clear", "no-such-part", "-y"],
}


@pytest.mark.parametrize("verb", FAILING)
def test_verbose_adds_the_traceback_to_the_one_line(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [verb, *FAILING[verb]]
    code, _, short = call(envsuite.main, words, capsys)
    assert code == 2 and re.fullmatch(r"error: .*\n", short), short
    code, _, long = call(envsuite.main, [*words, "-v"], capsys)
    assert code == 2 and long.startswith("Traceback") and long.splitlines()[-1] == short.strip()
