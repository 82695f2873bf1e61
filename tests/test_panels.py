"""Panels: the order and the digest of a finite list of games depend on the games alone."""

import random

from envsuite.panels import make_panel

GAMES = [("heat", "b", "2"), ("clean", "d", "4"), ("clean", "a", "1"), ("clean", "c", "3"), ("look", "e", "5")]


def test_types_take_turns_until_each_has_no_game_left():
    panel = make_panel("toy", GAMES)
    assert panel.games == ("a", "b", "e", "c", "d")  # clean, heat, look, clean, clean


def test_any_order_gives_the_same_panel_and_another_content_another_digest():
    panel = make_panel("toy", GAMES)
    shuffled = random.Random(0).sample(GAMES, len(GAMES))
    assert shuffled != GAMES and make_panel("toy", iter(shuffled)) == panel
    assert make_panel("toy", [("heat", "b", "other"), *GAMES[1:]]).digest != panel.digest
    assert make_panel("toy", [("heat", "b2", "2"), *GAMES[1:]]).digest != panel.digest


def test_a_panel_may_be_empty():
    assert make_panel("toy", []).games == ()
