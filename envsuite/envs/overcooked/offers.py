"""What each macro-action is called in a given state, and whether it would get anything done.

The published wording offers every macro-action always; its labels (docs/specs/overcooked.md, "Text and offers") suggest more than
they keep. The honest wording offers what changes something, under labels that say what.
"""

from __future__ import annotations

from envsuite.envs.overcooked.engine import CHOP, DELIVER, GET_BOWL, GET_FOOD, GO_TO_BOARD, Macro, Simulation
from envsuite.envs.overcooked.kitchen import BOARD, UNREACHABLE


def published_label(sim: Simulation, cook: int, macro: Macro) -> str:
    """The published label of a macro-action, true or not."""
    verb, index, _ = macro
    hand = sim.hand[cook]
    if verb == GET_FOOD:
        return f"{'into_bowl' if hand >= sim.n_foods else 'pickup'}:{sim.kitchen.foods[index]}"
    if verb == GET_BOWL:
        which = f":{index + 1}" if len(sim.contents) > 1 else ""
        if len(sim.kitchen.boards) == 1:
            return "take_bowl" + which
        return ("take_bowl" if _seen_filled(sim, cook, index) else "take_bowl:empty") + which
    if verb == GO_TO_BOARD:
        which = f":{index + 1}" if len(sim.kitchen.boards) > 1 else ""
        if hand >= 0 and not sim.is_chopped(hand):
            return f"place:{sim.names[hand]}{which}"
        return "goto_board" + which
    if verb == DELIVER:
        return "serve:dish" if hand >= 0 else "serve:nothing"
    if verb == CHOP:
        food = _bare_food_beside(sim, cook)
        return f"chop:{sim.kitchen.foods[food]}" if food >= 0 else "chop:nothing"
    return f"place_on_counter:{sim.names[hand]}" if hand >= 0 else "goto_counter"


def _seen_filled(sim: Simulation, cook: int, bowl: int) -> bool:
    """Whether a bowl holds food and is in the cook's hand, or on a board in the cook's window."""
    if not sim.contents[bowl]:
        return False
    thing = sim.n_foods + bowl
    where = sim.place[thing]
    on_board = sim.kitchen.kind[where] == BOARD
    return sim.hand[cook] == thing or (on_board and bool(sim.kitchen.near(sim.cell[cook], sim.radius)[where]))


def situation(sim: Simulation, cook: int) -> tuple[int, bool, int, tuple[bool, ...]]:
    """All that the published labels of a kitchen's macro-actions depend on, so that they can be kept."""
    hand = sim.hand[cook]
    filled = tuple([bool(foods) and _seen_filled(sim, cook, bowl) for bowl, foods in enumerate(sim.contents)])
    return hand, sim.is_chopped(hand), _bare_food_beside(sim, cook), filled


def _bare_food_beside(sim: Simulation, cook: int) -> int:
    """The food on the first board next to the cook that has one, or -1."""
    for _, board in sim.kitchen.beside[sim.cell[cook]]:
        if 0 <= sim.lying[board] < sim.n_foods:
            return sim.lying[board]
    return -1


def helps(sim: Simulation, cook: int, macro: Macro) -> bool:
    """Whether a macro-action would get something done from here, other cooks standing still.

    That is changing anything but the cook's place, or going up to raw food on a board, empty-handed.
    """
    verb, index, _ = macro
    hand, n_foods = sim.hand[cook], sim.n_foods
    if verb <= GET_BOWL:
        thing = index if verb == GET_FOOD else n_foods + index
        where = sim.place[thing]
        if hand < 0:
            wanted = not sim.raw_on_board(where)
        elif verb == GET_FOOD:
            wanted = hand >= n_foods and sim.is_chopped(thing)
        else:
            wanted = sim.is_chopped(hand)
        return wanted and sim.lying[where] == thing and sim.reaches(cook, where)
    if verb == GO_TO_BOARD:
        board = sim.kitchen.boards[index]
        thing = sim.lying[board]
        if hand < 0:
            return sim.raw_on_board(board) and 1 < sim.kitchen.way(board).steps[sim.cell[cook]] < UNREACHABLE
        if thing >= 0:
            joins = sim.is_chopped(thing) if hand >= n_foods else thing >= n_foods and sim.is_chopped(hand)
            if not joins:
                return False
        return sim.reaches(cook, board)
    if verb == CHOP:
        return hand < 0 and sim.board_to_chop_at(cook) >= 0
    if hand < 0:
        return False
    if verb == DELIVER:
        return any(sim.reaches(cook, cell) for cell in sim.kitchen.deliveries)
    return True  # some counter is free: every thing had one of its own at the start


def honest_label(sim: Simulation, cook: int, macro: Macro) -> str | None:
    """What a macro-action would get done from here, None where nothing."""
    if not helps(sim, cook, macro):
        return None
    verb, index, _ = macro
    hand, n_foods, foods = sim.hand[cook], sim.n_foods, sim.kitchen.foods
    if verb == GET_FOOD:
        kind = "into_bowl:" if hand >= 0 else "pickup:chopped " if sim.is_chopped(index) else "pickup:"
        return kind + foods[index]
    if verb == GET_BOWL:
        name = sim.names[n_foods + index]
        return f"pickup:{name}" if hand < 0 else f"fill:{foods[hand]}:{name}"
    if verb == GO_TO_BOARD:
        which = f":{index + 1}" if len(sim.kitchen.boards) > 1 else ""
        thing = sim.lying[sim.kitchen.boards[index]]
        if hand < 0:
            return "goto_board" + which
        if thing < 0:
            return f"place:{sim.names[hand]}{which}"
        return f"gather:{foods[thing]}{which}" if hand >= n_foods else f"add:{foods[hand]}{which}"
    if verb == CHOP:
        return f"chop:{foods[sim.lying[sim.board_to_chop_at(cook)]]}"
    if verb == DELIVER:
        right = hand >= n_foods and sim.served(hand - n_foods)
        return "serve:dish" if right else f"refuse:{sim.names[hand]}"
    return f"place_on_counter:{sim.names[hand]}"
