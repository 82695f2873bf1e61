"""Figures in the documentation equal stored results, and the stored results equal new episodes."""

import pytest

from benchmarks import floors
from docs import _figures, _gallery
from envsuite import registry
from envsuite.errors import MissingExtra, UsageError
from harness.cli.envs import card, share_of_wins
from harness.difficulty_cards import measure

FIRST = {"alfworld": 40, "virtualhome": 40, "textworld": 1}
"""games of each stored result that are played again"""


def test_every_figure_on_a_page_is_rendered_from_its_stored_result():
    pages = _figures.pages()
    marks = sum(len(_figures.MARK.findall(text)) for text in pages.values())
    assert marks >= 8
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name} is stale: make figures"


SLOW = {name: [pytest.mark.slow] if name.startswith("textworld") else [] for name in floors.FLOORS}
"""TextWorld compiles a game for seconds"""


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SLOW.items()])
def test_the_first_games_of_a_stored_result_are_played_as_stored(name):
    floor, stored = floors.FLOORS[name], floors.read()[name]
    assert len(stored) == floor.games * floor.attempts and set(stored) <= {"0", "1"}
    games = FIRST[name.partition("-")[0]]
    try:
        again = floors.wins(floor, games)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert stored.startswith(again) and len(again) == games * floor.attempts, f"python -m benchmarks.floors {name}"


@pytest.mark.parametrize("name", ["ALFWorld-generated-easy-v0", "VirtualHome-cheese-v0", "Overcooked-easy-v0"])
def test_a_card_is_measured_as_shipped(name):
    task = registry.TASKS[name]
    shipped = card(task)
    again = {key: value for key, value in measure(task, shipped["episodes"]).items() if key in shipped}
    assert again == shipped, f"envsuite envs {name} --measure {shipped['episodes']}"


def test_an_unknown_figure_is_named():
    with pytest.raises(UsageError, match="No stored result for the figure 'floor: nowhere'"):
        _figures.figure("floor", "nowhere")
    with pytest.raises(UsageError, match="No stored result for the figure 'board: overcooked X random'"):
        _figures.figure("board", "overcooked X random")


def test_a_share_of_a_card_has_its_interval():
    assert share_of_wins({"episodes": 50, "random_success": 0.1}, "random") == "0.10 [0.03, 0.22]"
    assert share_of_wins({"episodes": 50, "idle_success": 0.0}, "idle") == "0.00 [0.00, 0.31]"
    assert share_of_wins({"episodes": 50}, "expert") == "–"
    entry = _gallery.ENTRIES[0]
    assert "| 0.14 [0.08, 0.22] | 1.00 [0.96, 1.00] |" in _gallery.table(entry)
