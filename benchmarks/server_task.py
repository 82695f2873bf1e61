"""A task with short prompts that differ from seed to seed, for `benchmarks.servers`."""

from __future__ import annotations

import random

from envsuite import Outcome, Task, TextEnv, register

GOODS = (
    "apple basket blanket bread bucket candle carpet cheese cup hammer honey kettle knife lamp lemon mirror "
    "needle onion pear pepper plum pot ribbon rope salt scarf soap spoon tea umbrella"
)


class Market(TextEnv):
    """Buy three things in a given order."""

    instructions = "You are at a market. Answer with the one thing that you buy next."

    def _reset(self, seed: int) -> str:
        self.for_sale = random.Random(seed).sample(GOODS.split(), 7)
        self.missing = self.for_sale[1:6:2]
        self.objective = f"Buy the {', then the '.join(self.missing)}."
        return self._offer()

    def _act(self, command: str) -> Outcome:
        thing = next((word for word in self.for_sale if word in command.lower()), None)
        if thing is None:
            return Outcome(f"Nobody sells {command[:40]!r}. {self._offer()}", valid=False)
        self.for_sale.remove(thing)
        if thing != self.missing[0]:
            return Outcome(f"You buy the {thing}, which is not the next thing.", done=True)
        del self.missing[0]
        if not self.missing:
            return Outcome(f"You buy the {thing}.", reward=1.0, done=True, success=True)
        return Outcome(f"You buy the {thing}. {self._offer()}")

    def _offer(self) -> str:
        return f"For sale: {', '.join(self.for_sale)}."

    def admissible(self) -> list[str]:
        return list(self.for_sale)

    def expert(self, kind: str = "") -> str | None:
        return self.missing[0]


register(Task(id="Market-v0", entry_point="benchmarks.server_task:Market", summary="buy three things in order"))
