"""A blind script that visits first the places where its object was most often found.

    python -m benchmarks.alfworld_blind

For every class of object it counts which receptacles hold the first object of that class in training games of a
level. In a test game it visits as many of these places as the turn limit allows, and then does what the task asks for.
It reads the task and no observation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.envs.alfworld.blind import blind_commands
from envsuite.envs.alfworld.env import PUT
from envsuite.envs.alfworld.games.game import AlfworldGame

LEVELS, LIMITS = ("easy", "medium", "hard"), (10, 20, 50)
TRAINING_GAMES, TEST_GAMES, FIRST_TEST_SEED = 1_500, 100, 1_000_000
FEWEST_GAMES = 10
"""games of a class of object below which the places of all classes count"""


class Place(NamedTuple):
    """A receptacle by name, and whether it starts closed."""

    name: str
    closed: bool


def places_of_target(game: AlfworldGame) -> list[Place]:
    """Returns the receptacles that hold the first object of the class that a game asks for."""
    first = f"{game.target_word} 1"
    return [
        Place(name, bool(game.openable >> r & 1))
        for r, name in enumerate(game.receptacles)
        if any(game.objects[o] == first for o in game.start.contents[r])
    ]


def ordered_places(games: list[list[Place]]) -> list[Place]:
    """Returns places in greedy order: next the one with most games per command that no earlier place wins."""
    order: list[Place] = []
    while games:
        gain: Counter[Place] = Counter()
        for places in games:
            for place in places:
                gain[place] += 1
        if not gain:
            break
        best = max(sorted(gain), key=lambda place: gain[place] / (2 + place.closed))
        order.append(best)
        games = [places for places in games if best not in places]
    return order


def script(env: TextEnv, target: str, order: list[Place], limit: int) -> list[str]:
    """Returns the commands for the present task: a search that leaves room for the ending of the usual blind script."""
    usual = blind_commands(env.objective, PUT["2.1.1"], -1.0)
    last_take = max(number for number, command in enumerate(usual) if command.startswith("take "))
    ending = usual[last_take + 1 :]
    search: list[str] = []
    for place in order:
        visit = [f"go to {place.name}", *[f"open {place.name}"] * place.closed, f"take {target} 1 from {place.name}"]
        if len(search) + len(visit) + len(ending) <= limit:
            search += visit
    return search + ending


def wins(level: str, version: int, limit: int) -> int:
    """Returns how many test games the script wins within `limit` turns."""
    env = registry.build(f"ALFWorld-generated-{level}-v{version}", max_steps=limit)
    found: dict[str, list[list[Place]]] = defaultdict(list)
    for seed in range(TRAINING_GAMES):
        env.reset(seed=seed)
        game = env._source.game  # type: ignore[attr-defined]
        found[game.target_word].append(places_of_target(game))
    everything = [places for games in found.values() for places in games]
    won = 0
    for seed in range(FIRST_TEST_SEED, FIRST_TEST_SEED + TEST_GAMES):
        env.reset(seed=seed)
        target = env._source.game.target_word  # type: ignore[attr-defined]
        games = found[target] if len(found[target]) >= FEWEST_GAMES else everything
        for command in script(env, target, ordered_places(games), limit):
            _, _, terminated, truncated, _ = env.step(command)
            if terminated or truncated:
                break
        won += env.success
    return won


def main() -> None:
    for version in (1, 2):
        for level in LEVELS:
            row = {limit: wins(level, version, limit) for limit in LIMITS}
            print(f"ALFWorld-generated-{level}-v{version}: won of {TEST_GAMES} games by turn limit: {row}", flush=True)


if __name__ == "__main__":
    main()
