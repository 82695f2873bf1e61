"""Success of scripted teams in VirtualHome's homes for two agents, as the rows of a Markdown table.

    python -m benchmarks.virtualhome_pair

Plays the first 100 test games of each level. `expert + idle` is agent 1 with a partner who does nothing; two
haulers carry everything to the shared room in place of talking.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean
from typing import Any

from envsuite import registry
from envsuite.envs.virtualhome.pair.experts import ErrandExpert
from harness.stats.estimates import proportion

GAMES = 100
FIRST = 1_000_000
Player = Callable[[Any, random.Random], str]


def expert(env: Any, dice: random.Random) -> str:
    return str(env.expert())


def partial(env: Any, dice: random.Random) -> str:
    return str(env.expert("partial"))


def idle(env: Any, dice: random.Random) -> str:
    return str(env.idle())


def blind(env: Any, dice: random.Random) -> str:
    return str(env.blind())


def anything(env: Any, dice: random.Random) -> str:
    return dice.choice(env.admissible())


class Hauler(ErrandExpert):
    """An agent that needs no messages: it carries every loose thing of its rooms to the shared room."""

    def _requests(self) -> list[str]:
        home = self.game.home
        mine = [home.bit[room] for room in self.game.drawn.rooms[self.agent]]
        own = {errand.item for _, errand in self.game.errands(self.agent)}
        return [key for key in home.movable_keys if key not in own and self._room_of(key) in mine]

    def _knows_of(self, item: str) -> bool:
        return True


def haul(env: Any, dice: random.Random) -> str:
    return Hauler(env.game, env.active, told_all=True).next()[0]


def play(level: str, players: tuple[Player, Player], **knobs: Any) -> tuple[int, float]:
    """Returns the games that a team wins, and its mean number of commands."""
    env: Any = registry.build(registry.TASKS[f"VirtualHome-pair-{level}-v0"], **knobs)
    dice, won, turns = random.Random(0), 0, []
    for seed in range(FIRST, FIRST + GAMES):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(players[env.active](env, dice))
            over = terminated or truncated
        won += info["success"]
        turns.append(env.turn)
    return won, mean(turns)


def percent(won: int) -> str:
    low, high = proportion(won / GAMES, GAMES).interval()
    return f"{100 * won / GAMES:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def main() -> None:
    for level in ("easy", "medium", "hard"):
        settings = registry.build(registry.TASKS[f"VirtualHome-pair-{level}-v0"]).settings
        experts, turns = play(level, (expert, expert))
        searching, longer = play(level, (partial, partial))
        cells = [
            f"{settings.rooms}, {settings.errands}, {settings.max_steps}",
            percent(experts),
            percent(searching),
            f"{turns:.1f}, {longer:.1f}",
            percent(play(level, (expert, expert), say=False)[0]),
            percent(play(level, (haul, haul), say=False)[0]),
            percent(play(level, (expert, idle))[0]),
            percent(play(level, (expert, anything))[0]),
            percent(play(level, (anything, anything))[0]),
            percent(play(level, (blind, blind))[0]),
        ]
        print(f"| {level} | {' | '.join(cells)} |", flush=True)
        one = play(level, (expert, expert), partner="policy")
        print(f"{level}, one player: {percent(one[0])}, {one[1]:.1f} commands")


if __name__ == "__main__":
    main()
