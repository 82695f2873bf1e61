"""The published kitchens: map A in two sizes, with a tomato alone or with all three foods.

Symbols: `#` counter, `.` floor, `k` cutting board, `d` delivery counter, `b` bowl, and the letter of each food, on the
counter where it is kept.
"""

from __future__ import annotations

from functools import lru_cache

from envsuite.envs.overcooked.foods import FOODS
from envsuite.envs.overcooked.grid import Grid
from envsuite.errors import UsageError

RECIPES = ("tomato", "lettuce", "onion", "tomato-lettuce", "tomato-onion", "lettuce-onion", "tomato-lettuce-onion")
"""orders, in the sequence of the published task numbers"""
START = 1, 4
"""row and column where the cook starts in kitchens of 7x7"""
START_9 = 1, 2
ROWS = {
    7: """
#####t#
k.....l
k.....o
d.....#
#.....#
#.....#
#####b#
""",
    9: """
#######t#
k.......l
k.......o
d.......#
#.......#
#.......#
#.......#
#.......#
#######b#
""",
}
SECOND_BOARD = 2, 0
"""row and column of the board that the kitchen with a tomato alone does not have"""


class Kitchen(Grid):
    """Fixed things of one kitchen. An item is a food, in the sequence of `foods`, or the bowl, which comes last."""

    def __init__(self, name: str, rows: list[str], start: tuple[int, int]) -> None:
        super().__init__(rows)
        self.name = name
        symbols = "".join(rows)
        self.foods = tuple(food for food, letter in FOODS.items() if letter in symbols)
        self.names = (*self.foods, "bowl")
        self.bowl = len(self.foods)
        self.homes = [symbols.index(letter) for letter in (*(FOODS[food] for food in self.foods), "b")]
        """cell of each item at the start"""
        self.boards = [cell for cell, symbol in enumerate(symbols) if symbol == "k"]
        self.delivery = symbols.index("d")
        self.start = start[0] * self.n_columns + start[1]
        self.boards_beside = [
            [number for number, board in enumerate(self.boards) if cell in self.around(board)]
            for cell in range(len(symbols))
        ]
        """numbers of the boards next to each cell"""


def recipe_foods(recipe: str) -> tuple[str, ...]:
    """Returns the foods of a recipe."""
    return tuple(recipe.split("-"))


@lru_cache(maxsize=8)
def published_kitchen(variant: str, size: int) -> Kitchen:
    """Returns a published kitchen: variant v3 (all foods, two boards) or v4 (tomato, one board) of 7x7 or 9x9 cells."""
    if size not in ROWS:
        raise UsageError(f"There is no published kitchen of size {size}: set size=7 or size=9.")
    rows = [list(row) for row in ROWS[size].split()]
    if variant == "v4":
        rows = [["#" if symbol in "lo" else symbol for symbol in row] for row in rows]
        row, column = SECOND_BOARD
        rows[row][column] = "#"
    return Kitchen(f"{variant}-a-{size}", ["".join(row) for row in rows], START if size == 7 else START_9)
