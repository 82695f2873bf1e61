"""Commands that a player is offered under the fixed rules, with their actions."""

from __future__ import annotations

from envsuite.envs.virtualhome.rules.engine import GRAB, STANDUP, WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine, Loose
from envsuite.envs.virtualhome.rules.home import interned
from envsuite.envs.virtualhome.text import command


class OfferList:
    """Lists every command that would be accepted in a state: the phrases of `FixedEngine.commands`, in its order.

    Walks are stored for each place, so that only the few actions within reach are listed anew.
    """

    def __init__(self, engine: FixedEngine) -> None:
        self.engine, self.home = engine, engine.home
        self._phrases: dict[HomeAction, str] = {}
        memo = self.home.memo
        self._walk: dict[int, tuple[str, HomeAction]] = memo.setdefault("walk", {})  # to rooms and furniture
        self._walk_to_object: dict[int, tuple[str, HomeAction]] = {}
        self._walks: dict[tuple[int, int], dict[str, HomeAction]] = {}

    def phrase(self, action: HomeAction) -> str:
        """Returns the command for an action."""
        phrase = self._phrases.get(action)
        if phrase is None:
            phrase = self._phrases[action] = command(self.home, action)
        return phrase

    def __call__(self, s: HomeState, loose: Loose) -> dict[str, HomeAction]:
        """Returns command -> action; `loose` is `engine.loose(s)`."""
        home, near = self.home, s.near
        here: list[int] = []
        elsewhere: list[int] = []
        for place, things in loose:
            (here if near and home.root.get(place) == near else elsewhere).extend(things)
        offers: dict[str, HomeAction] = {}
        if not s.sitting:
            offers = dict(self._walks.get((s.room, near)) or self._walks_from(s.room, near))
            offers.update([self._walk_to(bit) for bit in sorted(elsewhere) if bit & home.target])
        if near:
            for action in self._within_reach(s, sorted(here)):
                offers[self._phrases.get(action) or self.phrase(action)] = action
        if s.sitting:
            offers[self.phrase(HomeAction(STANDUP))] = HomeAction(STANDUP)
        return offers

    def _walks_from(self, room: int, near: int) -> dict[str, HomeAction]:
        """Returns the walks to other rooms and to furniture."""
        home = self.home
        pieces = home.bits(home.fixed_in[room] & home.target & ~home.at_root.get(near, 0))
        walks = dict(map(self._walk_to, [*(bit for bit in home.room_bits if bit != room), *pieces]))
        self._walks[room, near] = walks
        return walks

    def _walk_to(self, bit: int) -> tuple[str, HomeAction]:
        """Returns the walk to a room or thing: its command and action."""
        known = self._walk_to_object if bit & self.home.movable else self._walk
        walk = known.get(bit)
        if walk is None:
            action = HomeAction(WALK, bit)
            walk = known[bit] = interned((self.phrase(action), action))
        return walk

    def _within_reach(self, s: HomeState, things: list[int]) -> list[HomeAction]:
        """Returns the actions on the furniture at which the agent stands, and on the loose `things` there."""
        target = self.home.target
        in_hand = [bit for bit in (s.right, s.left) if bit]
        actions: list[HomeAction] = []
        for x in self.engine.pieces[s.near]:
            if x & target:
                actions += self.engine.furniture_actions(s, x, in_hand)
        if len(in_hand) < 2:
            actions += [HomeAction(GRAB, x) for x in things if x & target]
        return actions
