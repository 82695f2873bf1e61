"""`envsuite check --gold`: games that cannot be won, or are won by doing nothing, are detected and
listed.
"""

import pytest

from envsuite import registry
from envsuite.checks.gold import deny_list, examine
from envsuite.errors import UsageError
from harness.cli import check
from tests import toys


def test_every_game_gets_the_verdict_it_deserves():
    results = {verdict.game: verdict for verdict in examine(registry.TASKS["Instances-v0"], times=2)}
    assert {game: verdict.status for game, verdict in results.items()} == {
        "sound": "sound",
        "broken": "broken",
        "flaky": "flaky",
        "free": "free",
        "unreadable": "broken",
    }
    assert "won 0 of 2 (failed)" in results["broken"].detail
    assert "won 1 of 2" in results["flaky"].detail
    assert results["unreadable"].detail == "The file of this game is torn."
    assert [line.split("  #")[0] for line in deny_list(list(results.values())).splitlines()] == [
        *toys.Instances.games[1:]
    ]


def test_only_so_many_games_are_examined_when_asked():
    assert [verdict.game for verdict in examine(registry.TASKS["Instances-v0"], times=1, first=1)] == ["sound"]


def test_a_task_without_a_panel_is_refused():
    with pytest.raises(UsageError, match="has no list of games"):
        next(examine(registry.TASKS["HiLo-v0"]))


def test_the_command_reports_writes_the_deny_list_and_exits_1(tmp_path, capsys):
    file = tmp_path / "bad.txt"
    with pytest.raises(SystemExit) as done:
        check.main(["--gold", "Instances", "--times", "2", "--deny-list", str(file)])
    assert done.value.code == 1
    message = capsys.readouterr().out
    assert "broken broken: the expert won 0 of 2 (failed)" in message
    assert "5 games, 4 to exclude" in message
    denied = [line.partition("  #")[0] for line in file.read_text().splitlines()]
    with pytest.raises(SystemExit) as done:
        check.main(["--gold", "Instances", "--times", "2", "--set", f"deny={','.join(denied)}"])
    assert done.value.code == 0


def test_numbers_that_make_no_sense_are_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as done:
        check.main(["--gold", "Instances", "--times", "0"])
    assert done.value.code == 2
    assert "--times and -n must be at least 1, not 0 and None." in capsys.readouterr().err
