"""Labels of the macro-actions in the current state, and the test whether a macro-action changes anything.

The published wording always offers every macro-action, and its labels can promise more than the action does
(docs/specs/overcooked.md, "Text and offers"). The honest wording offers only macro-actions that change something, with
labels that describe the change.
"""

from __future__ import annotations

from envsuite.envs.overcooked.engine import CHOP, DELIVER, GET_BOWL, GET_FOOD, GO_TO_BOARD, Macro, Simulation
from envsuite.envs.overcooked.kitchen import BOARD, UNREACHABLE


def published_label(sim: Simulation, cook: int, macro: Macro) -> str:
    """Returns the published label of a macro-action, which may promise an effect that it does not have."""
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
    """Returns True if a bowl with food is in the cook's hand, or on a board in the cook's view."""
    if not sim.contents[bowl]:
        return False
    thing = sim.n_foods + bowl
    cell = sim.place[thing]
    on_board = sim.kitchen.kind[cell] == BOARD
    return sim.hand[cook] == thing or (on_board and bool(sim.kitchen.near(sim.cell[cook], sim.radius)[cell]))


def label_state(sim: Simulation, cook: int) -> tuple[int, bool, int, tuple[bool, ...]]:
    """Returns everything that the published labels depend on, as a cache key."""
    hand = sim.hand[cook]
    filled = tuple([bool(foods) and _seen_filled(sim, cook, bowl) for bowl, foods in enumerate(sim.contents)])
    return hand, sim.is_chopped(hand), _bare_food_beside(sim, cook), filled


def _bare_food_beside(sim: Simulation, cook: int) -> int:
    """Returns the food on the first adjacent board that holds one, or -1."""
    for _, board in sim.kitchen.beside[sim.cell[cook]]:
        if 0 <= sim.lying[board] < sim.n_foods:
            return sim.lying[board]
    return -1


def helps(sim: Simulation, cook: int, macro: Macro) -> bool:
    """Returns True if a macro-action would achieve something now, while the other cooks stand still.

    Achieving something means to change anything except the cook's position, or to walk empty-handed to a board with raw
    food.
    """
    verb, index, _ = macro
    hand, n_foods = sim.hand[cook], sim.n_foods
    if verb <= GET_BOWL:
        thing = index if verb == GET_FOOD else n_foods + index
        cell = sim.place[thing]
        if hand < 0:
            useful = not sim.raw_on_board(cell)
        elif verb == GET_FOOD:
            useful = hand >= n_foods and sim.is_chopped(thing)
        else:
            useful = sim.is_chopped(hand)
        return useful and sim.lying[cell] == thing and sim.reaches(cook, cell)
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
    return True  # some counter is free: each thing started on a separate counter


def honest_label(sim: Simulation, cook: int, macro: Macro) -> str | None:
    """Returns a label that states the effect of a macro-action, or None if it has no effect."""
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
