"""HiLo: an environment of somebody else's, registered from outside in one line.

envsuite check HiLo --module examples.hilo
envsuite-eval -m random -e HiLo --module examples.hilo
"""

from envsuite import Knob, Outcome, Task, TextEnv, register


class HiLo(TextEnv):
    """Find a hidden number from "higher" and "lower".

    Dense reward: 0.1 for a guess inside what is still possible, 1 for the number itself. Harder: more numbers.
    """

    knobs = (Knob("size", 16, "numbers to choose from", low=2, high=1024), Knob("max_steps", 8, "guesses", low=1))
    levels = {"easy": {"size": 8}, "medium": {"size": 16}, "hard": {"size": 64}}
    instructions = "I am thinking of a whole number. Guess it; I will say higher or lower."

    def _reset(self, seed: int) -> str:
        self.low, self.high = 1, self.settings.size
        self.secret = 1 + (seed * 2654435761) % self.settings.size
        self.objective = f"Find a number from 1 to {self.high}."
        return f"{self.objective} What is your guess?"

    def _act(self, command: str) -> Outcome:
        if not (command.isascii() and command.isdecimal()):
            return Outcome("That is not a whole number.", valid=False)
        guess = int(command[:9])
        if guess == self.secret:
            return Outcome("Correct!", reward=1.0, done=True, success=True)
        useful = self.low <= guess <= self.high
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        return Outcome("higher" if guess < self.secret else "lower", reward=0.1 * useful)

    def admissible(self) -> list[str]:
        return [str(n) for n in range(self.low, self.high + 1)]

    def expert(self, kind: str = "") -> str | None:
        return str(self.secret)

    def remaining(self) -> int | None:
        return 0 if self.success else 1

    def get_state(self) -> tuple[int, int, int]:
        return self.low, self.high, self.secret

    def set_state(self, state: tuple[int, int, int]) -> None:
        self.low, self.high, self.secret = state

    def labels(self) -> dict[str, str]:
        return {"task_type": "even" if self.secret % 2 == 0 else "odd"}


register(Task(id="HiLo-v0", entry_point="examples.hilo:HiLo", summary="find a hidden number"))
