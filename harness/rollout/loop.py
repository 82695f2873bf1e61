"""The one loop in which a policy plays environments. Evaluation and training both run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from envsuite.types import StopReason
from harness.prompting.prompting import Parsed, Past, Prompting
from harness.rollout.executors import Executor, StepResult
from harness.types import Episode, Policy, Prompt, Reply, Trajectory, Turn

LIVES = 2
"""how often an episode may take its worker down, or seem to, before it counts as broken"""


@dataclass(slots=True)
class EpisodeState:
    """An episode in progress: what was shown last, and all that has come of it."""

    run: Trajectory
    shown: StepResult
    key: str
    lives: int = LIVES - 1
    reply: Reply | None = None
    parsed: Parsed = Parsed(())
    began: float = field(default_factory=time.monotonic)
    past: Past = field(default_factory=Past)

    @classmethod
    def begin(
        cls, played: Episode, shown: StepResult, lives: int = LIVES - 1, began: float | None = None
    ) -> EpisodeState:
        """`shown`: what the environment answered to its reset."""
        run = Trajectory(played, shown.instructions, shown.objective, dict(shown.info.get("labels", {})))
        run.final_observation = shown.observation
        if shown.error:
            run.stop_reason, run.error = StopReason.BROKEN, shown.error
        key = "\0".join(map(str, played.key))
        return cls(run, shown, key, lives, began=time.monotonic() if began is None else began)

    def prompt(self, prompting: Prompting, reads: bool = True) -> Prompt:
        """What the policy is asked next. `reads`: False for policies that only pass on advice, which are spared the
        conversation and the dice.
        """
        run, shown = self.run, self.shown
        turn = len(run.turns)
        admissible = shown.info["admissible_commands"]
        if not reads:
            return Prompt((), admissible, 0, self.key, shown.advice, turn, run.episode)
        return Prompt(
            messages=prompting.messages(
                run.instructions, run.objective, run.turns, shown.observation, admissible, self.past
            ),
            admissible=prompting.listed(admissible),
            seed=run.episode.dice(turn),
            key=self.key,
            tools=prompting.tools(admissible),
            turn=turn,
            episode=run.episode,
        )

    def take(self, shown: StepResult, max_turns: int | None) -> None:
        """Writes down what the environment answered to the reply that is pending."""
        run, reply, parsed, before = self.run, self.reply, self.parsed, self.shown
        assert reply is not None
        if shown.error:
            run.stop_reason, run.error = StopReason.BROKEN, shown.error
            return
        if not parsed.commands:
            fault = "length" if reply.finish_reason == "length" else "format"
        else:
            fault = "" if shown.info["is_action_valid"] else "invalid"
        run.turns.append(
            Turn(
                observation=before.observation,
                reply=reply,
                commands=parsed.commands[: shown.done_commands],
                reward=shown.reward,
                info=shown.info,
                thought=parsed.thought,
                fault=fault,
                note=parsed.note,
                admissible=before.info["admissible_commands"],
            )
        )
        self.shown = shown
        run.final_observation = shown.observation
        run.terminated, run.truncated = shown.terminated, shown.truncated
        run.success, run.progression = bool(shown.info["success"]), float(shown.info["progression"])
        run.stop_reason = shown.info["stop_reason"]
        if "metrics" in shown.info:
            run.metrics = dict(shown.info["metrics"])
        if run.stop_reason is None and max_turns is not None and len(run.turns) >= max_turns:
            run.truncated, run.stop_reason = True, StopReason.MAX_TURNS


def rollout(
    policy: Policy,
    episodes: Iterable[Episode],
    slots: Executor,
    prompting: Prompting | None = None,
    max_turns: int | Callable[[Episode], int] | None = None,
) -> Iterator[Trajectory]:
    """Plays every episode once and yields each as it ends; a slot that is free starts the next one.

    `max_turns` ends an episode; one number for all, or a number for each.
    What happens in an episode depends on its key and the policy alone, not on what is played beside it.
    Errors of an environment or of the policy's server end that episode as broken and spare its neighbours. One that was
    lost with its worker is played again from its start, and nobody can tell.
    """
    prompting = prompting or Prompting()
    queue = iter(episodes)
    playing: dict[int, EpisodeState] = {}
    starting: dict[int, tuple[Episode, float, int]] = {}  # with the lives left

    def start(slot: int, played: Episode, began: float, lives: int) -> None:
        starting[slot] = (played, began, lives)
        slots.start(slot, played)

    def refill(slot: int) -> None:
        following = next(queue, None)
        if following is not None:
            start(slot, following, time.monotonic(), LIVES - 1)

    def finish(slot: int) -> Trajectory:
        state = playing.pop(slot)
        state.run.seconds = time.monotonic() - state.began
        refill(slot)
        return state.run

    for slot in range(slots.count):
        refill(slot)
    while starting or playing:
        ready: list[int] = []
        # A slot that was just refilled joins this batch where its environment answers at once.
        while answers := slots.poll(wait=not ready):
            for slot, shown in answers:
                if shown.fatal is not None:
                    raise shown.fatal
                if slot in starting:
                    played, began, lives = starting.pop(slot)
                    state = playing[slot] = EpisodeState.begin(played, shown, lives, began)
                else:
                    state = playing[slot]
                    state.take(shown, max_turns(state.run.episode) if callable(max_turns) else max_turns)
                lives = state.lives - (shown.lost == "suspect")
                if shown.lost and lives >= 0:
                    del playing[slot]
                    start(slot, state.run.episode, state.began, lives)
                    continue
                if state.run.stop_reason is None:
                    ready.append(slot)
                else:
                    yield finish(slot)
        if not ready:
            continue
        replies = policy.act([playing[slot].prompt(prompting, reads=not policy.advice_kind) for slot in ready])
        for slot, reply in zip(ready, replies, strict=True):
            state = playing[slot]
            state.reply = reply
            if reply.error or reply.finish_reason == "context":
                broken = bool(reply.error)
                state.run.stop_reason = StopReason.BROKEN if broken else StopReason.CONTEXT
                state.run.error, state.run.truncated = reply.error, not broken
                yield finish(slot)
                continue
            if reply.commands is None:
                state.parsed = prompting.parse(reply.text)
            else:  # chosen among what the prompt listed
                state.parsed = Parsed(reply.commands if policy.advice_kind else prompting.listed(reply.commands))
            slots.step(slot, state.parsed.commands, len(state.run.turns))
