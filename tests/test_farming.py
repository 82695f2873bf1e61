"""No commands can be repeated at a profit under the dense rewards, except where the published reward allows it."""

from __future__ import annotations

import pytest

from benchmarks import farming


def test_the_search_finds_the_loop_of_the_published_kitchen() -> None:
    """Shows that the search for loops can find one, and that Overcooked's published dense reward is farmed by it."""
    found = farming.search("Overcooked-tomato_salad-v0", episodes=12)
    assert found.paying > 0
    assert found.example[-1] == "hand in the dish"


@pytest.mark.parametrize(
    ("discount", "profit"), [("plain sum", 0.079), ("0.99 a command", 0.06), ("0.99 a primitive step", 0.06)]
)
def test_the_best_cycle_of_the_published_kitchen_pays(discount: str, profit: float) -> None:
    total, path = farming.best_cycle(farming.kitchen("Overcooked-tomato_salad-v0"), *farming.DISCOUNTS[discount])
    assert total > profit
    assert len(path) <= farming.CYCLE


@pytest.mark.parametrize("task", ["food_preparation", "entertainment"])
def test_no_paying_command_of_a_published_home_is_in_a_cycle(task: str) -> None:
    graph = farming.home(f"VirtualHome-{task}-v0")
    assert graph.paying > 0
    assert graph.repeatable == 0


@pytest.mark.parametrize(
    ("task", "package"),
    [
        ("TextWorld-simple-dense-v0", "textworld"),
        ("BabyAI-level-GoToLocal-v0", "minigrid"),
        ("ALFWorld-generated-easy-v0", "alfworld"),
        ("VirtualHome-easy-v0", "numpy"),
        ("Overcooked-easy-v0", "numpy"),
    ],
)
def test_no_loop_of_sampled_episodes_pays_again(task: str, package: str) -> None:
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    found = farming.search(task, episodes=3)
    assert found.commands > 10
    assert found.paying == 0, found.example


def test_giving_two_programs_in_turn_is_paid_once() -> None:
    pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
    first, *later = farming.alternate(
        "DataSciCoding-breast-cancer-v0", [farming.CONSTANT, farming.STUMP], 3, mode="improve", attempts=8
    )
    assert first > 0.5
    assert later == [0.0, 0.0]
