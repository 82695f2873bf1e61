"""The rollout: a policy plays episodes in environments. Evaluation and training use the same loop.

No episode waits for another one. The loop submits a prompt as soon as an environment has answered,
steps an environment as soon as its reply is there, and otherwise waits for both with a single call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from envsuite.types import StopReason
from harness.prompting.grammars import Parsed
from harness.prompting.prompting import Prompting
from harness.reasoning import is_thinking
from harness.rollout.activity import Activity
from harness.rollout.executors import Executor, StepResult
from harness.types import Episode, IgnoresAdvice, Policy, Prompt, Reply, Trajectory, Turn, advice_of
from harness.waiting import asynchronous, wait

LIVES = 2
"""Number of times that an episode may lose its worker as a suspect before it counts as broken."""

MAX_WAIT = 60.0
"""Seconds after which the loop looks again at silent environments and policies."""

MaxTurns = int | Callable[[Episode], int] | None


def next_prompt(
    run: Trajectory,
    turns: Sequence[Turn],
    observation: str,
    admissible: Sequence[str],
    prompting: Prompting,
    key: str,
    agent: int = 0,
) -> Prompt:
    """Returns the prompt of a model that has seen `turns` of an episode and now reads `observation`.

    An `agent` has only seen its own turns, in a separate conversation.
    """
    return Prompt(
        messages=prompting.messages(run.instructions, run.objective, turns, observation, admissible, run.labels, agent),
        admissible=prompting.listed(admissible),
        seed=run.episode.turn_seed(len(turns)),
        key=f"{key}\0agent {agent}" if agent else key,
        tools=prompting.tools(run.tools),
        turn=sum(turn.agent == agent for turn in turns) if agent else len(turns),
        episode=run.episode,
        agent=agent,
    )


@dataclass(slots=True)
class EpisodeState:
    """An episode in progress: its trajectory and the environment's latest answer."""

    run: Trajectory
    result: StepResult
    key: str
    lives: int = LIVES - 1
    reply: Reply | None = None
    parsed: Parsed = Parsed(())
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls, episode: Episode, result: StepResult, lives: int = LIVES - 1, began: float | None = None
    ) -> EpisodeState:
        """Creates the state of an episode from its environment's answer to the reset."""
        labels = dict(result.info.get("labels", {}))
        run = Trajectory(episode, result.instructions, result.objective, labels, result.tools)
        run.final_observation = result.observation
        if result.error:
            run.stop_reason, run.error = StopReason.BROKEN, result.error
        key = "\0".join(map(str, episode.key))
        return cls(run, result, key, lives, began=time.monotonic() if began is None else began)

    @property
    def agent(self) -> int:
        """The agent that acts next, as in `Prompt`."""
        return int(self.result.info.get("agent", 0))

    def prompt(self, prompting: Prompting, reads: bool = True) -> Prompt:
        """Returns the next prompt. Policies that only follow advice (`reads` False) get neither
        messages nor a seed.
        """
        run, result = self.run, self.result
        turn = len(run.turns)
        admissible = result.info["admissible_commands"]
        if not reads:
            return Prompt((), admissible, 0, self.key, result.advice, turn, run.episode, agent=self.agent)
        return next_prompt(run, run.turns, result.observation, admissible, prompting, self.key, self.agent)

    def answer(self, reply: Reply, prompting: Prompting, advised: bool) -> bool:
        """Stores a reply and parses its commands. Returns False if the reply ends the episode."""
        self.reply = reply
        run = self.run
        if reply.error:
            run.stop_reason, run.error = StopReason.BROKEN, reply.error
            return False
        if reply.finish_reason == "context":
            run.stop_reason, run.truncated = StopReason.CONTEXT, True
            return False
        if reply.commands is None:
            self.parsed = prompting.parse(reply.text, reply.calls, run.tools, len(run.turns))
            reply.calls = self.parsed.calls
        else:  # chosen among the commands of the prompt, which are reworded
            self.parsed = Parsed(reply.commands if advised else prompting.listed(reply.commands))
        return True

    def take(self, result: StepResult, max_turns: int | None) -> None:
        """Appends the turn that consists of the pending reply and the environment's answer to it."""
        run, reply, parsed, before = self.run, self.reply, self.parsed, self.result
        assert reply is not None
        if result.error:
            run.stop_reason, run.error = StopReason.BROKEN, result.error
            return
        if not parsed.commands or parsed.substitute:
            cut_off = reply.finish_reason == "length"
            fault = ("thinking" if is_thinking(reply.text) else "length") if cut_off else "format"
        else:
            fault = "" if result.info["is_action_valid"] else "invalid"
        run.turns.append(
            Turn(
                observation=before.observation,
                reply=reply,
                commands=parsed.commands[: result.done_commands],
                reward=result.reward,
                info=result.info,
                thought=parsed.thought,
                fault=fault,
                note=parsed.note,
                admissible=before.info["admissible_commands"],
                agent=self.agent,
                advice=before.advice,
            )
        )
        self.result = result
        run.final_observation = result.observation
        run.terminated, run.truncated = result.terminated, result.truncated
        run.success, run.progression = bool(result.info["success"]), float(result.info["progression"])
        run.stop_reason = result.info["stop_reason"]
        if "metrics" in result.info:
            run.metrics = dict(result.info["metrics"])
        if "artifacts" in result.info:
            run.artifacts = dict(result.info["artifacts"])
        if run.stop_reason is None and max_turns is not None and len(run.turns) >= max_turns:
            run.truncated, run.stop_reason = True, StopReason.MAX_TURNS


class _Queue:
    """The executor's slots with the episodes they start and play."""

    def __init__(self, episodes: Iterable[Episode], executor: Executor, max_turns: MaxTurns) -> None:
        self._episodes = iter(episodes)
        self._executor = executor
        self._max_turns = max_turns
        self._starting: dict[int, tuple[Episode, float, int]] = {}  # episode, start time, lives
        self.playing: dict[int, EpisodeState] = {}
        for slot in range(executor.count):
            self._start_next(slot)

    @property
    def active(self) -> bool:
        return bool(self._starting or self.playing)

    def take(self, slot: int, result: StepResult) -> EpisodeState | None:
        """Applies the result of a slot's environment; returns the state of its episode.

        Returns None if the episode was lost with its worker: it is started again.
        """
        if result.fatal is not None:
            raise result.fatal
        if slot in self._starting:
            state = self.playing[slot] = EpisodeState.begin(
                self._starting[slot][0], result, began=self._starting[slot][1], lives=self._starting[slot][2]
            )
            del self._starting[slot]
        else:
            state = self.playing[slot]
            limit = self._max_turns
            state.take(result, limit(state.run.episode) if callable(limit) else limit)
        lives = state.lives - (result.lost == "suspect")
        if result.lost and lives >= 0:
            del self.playing[slot]
            self._start(slot, state.run.episode, state.began, lives)
            return None
        return state

    def finish(self, slot: int) -> Trajectory:
        """Ends the slot's episode and starts the next one there."""
        state = self.playing.pop(slot)
        state.run.seconds = time.monotonic() - state.began
        self._start_next(slot)
        return state.run

    def _start_next(self, slot: int) -> None:
        episode = next(self._episodes, None)
        if episode is not None:
            self._start(slot, episode, time.monotonic(), LIVES - 1)

    def _start(self, slot: int, episode: Episode, began: float, lives: int) -> None:
        self._starting[slot] = episode, began, lives
        self._executor.start(slot, episode)


def rollout(
    policy: Policy,
    episodes: Iterable[Episode],
    executor: Executor,
    prompting: Prompting | None = None,
    max_turns: MaxTurns = None,
    activity: Activity | None = None,
) -> Iterator[Trajectory]:
    """Plays every episode once and yields each one when it ends; a free slot starts the next
    episode.

    `max_turns` limits the turns of all episodes, or of each one if it is a function. An episode
    depends only on its key and the policy, not on timing or on other episodes. An error of an
    environment or a server breaks its episode only. An episode that was lost with its worker is
    played again from its start. Closing the iterator cancels pending prompts and requests. `activity`
    counts what happens, for displays.
    """
    prompting = prompting or Prompting()
    player = asynchronous(policy)
    followed = "" if isinstance(policy, IgnoresAdvice) and policy.ignores_advice else policy.advice_kind
    queue = _Queue(episodes, executor, max_turns)
    activity = activity or Activity()
    activity.begin(policy, queue.playing)
    try:
        while queue.active:
            idle = True
            # An environment that answers at once joins the same round of prompts.
            while results := executor.poll(wait=False):
                idle = False
                for slot, result in results:
                    state = queue.take(slot, result)
                    if state is None:
                        continue
                    if state.run.stop_reason is None:
                        activity.asked()
                        player.submit(slot, state.prompt(prompting, reads=not advice_of(followed, state.agent)))
                    else:
                        yield queue.finish(slot)
            for slot, reply in player.collect():
                idle = False
                activity.replied(reply)
                state = queue.playing[slot]
                if state.answer(reply, prompting, bool(advice_of(followed, state.agent))):
                    executor.step(slot, state.parsed.commands, len(state.run.turns))
                else:
                    yield queue.finish(slot)
            if idle:
                deadline = executor.deadline()
                remaining = math.inf if deadline is None else deadline - time.monotonic()
                timeout = min(MAX_WAIT, max(0.0, remaining))
                wait([*executor.sources(), *player.sources()], timeout)
    finally:
        player.cancel()
        executor.cancel()
