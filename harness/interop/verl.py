"""Adapter of any task to verl's agent loop.

    # agent_loops.yaml, named by actor_rollout_ref.rollout.agent.agent_loop_config_path
    - name: envsuite
      _target_: harness.interop.verl.agent_loop

The dataset consists of `harness.interop.chat_game.rows(...)`, whose column `agent_name` names this loop. The reward is
the sum of the turns' rewards. Tokens of observations have mask 0, and replies keep the tokens that were sampled.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

from envsuite.errors import UsageError
from harness.interop.chat_game import open_row


class VerlGame:
    """Rollout of one game, on top of verl's `AgentLoopBase`, which tokenises and generates."""

    rollout_config: Any
    server_manager: Any
    tokenizer: Any
    ct_build_initial_tokens: Any
    ct_merge_assistant_token: Any
    ct_merge_context_msg: Any

    async def play(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        """Plays the game of a row; returns the fields of an `AgentLoopOutput`. Raises EngineFailure.

        The episode is cut when its tokens reach verl's `response_length` or its replies `max_assistant_turns`.
        """
        if "game" not in row:
            raise UsageError("The dataset has no column 'game': make its rows with harness.interop.chat_game.rows.")
        length = self.rollout_config.response_length
        multi_turn = self.rollout_config.multi_turn
        game, seed = open_row("verl", str(row["game"]), multi_turn.max_assistant_turns or None)
        request_id = uuid4().hex
        generating = stepping = 0.0
        mask: list[int] = []
        logprobs: list[float] | None = None
        rewards: list[float] = []
        try:
            chat = await asyncio.to_thread(game.begin, seed)
            ids = await self.ct_build_initial_tokens(chat)
            while not game.done and len(mask) < length:
                clock = time.monotonic()
                output = await self.server_manager.generate(
                    request_id=request_id, prompt_ids=ids, sampling_params=sampling_params
                )
                generating += time.monotonic() - clock
                known = (logprobs or []) if output.log_probs else None
                merged, mask, logprobs = await self.ct_merge_assistant_token(
                    ids, output.token_ids, mask, known, output.log_probs or None
                )
                ids = merged.token_ids
                clock = time.monotonic()
                text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
                rewards.append(await asyncio.to_thread(game.reply, text))
                stepping += time.monotonic() - clock
                if not game.done:
                    before = game.messages[:-1]
                    merged, longer, more = await self.ct_merge_context_msg(before, game.messages, ids, mask, logprobs)
                    if len(longer) >= length:
                        break
                    ids, mask, logprobs = merged.token_ids, longer, more
            metrics = game.metrics()
        finally:
            await asyncio.to_thread(game.close)
        replies = ids[len(ids) - len(mask) :]
        return {
            "prompt_ids": ids[: len(ids) - len(mask)],
            "response_ids": replies[:length],
            "response_mask": mask[:length],
            "response_logprobs": logprobs[:length] if logprobs else None,
            "reward_score": sum(rewards),
            "num_turns": 2 * len(rewards) + 1,
            "metrics": {"generate_sequences": generating, "tool_calls": stepping},
            "extra_fields": {"turn_scores": rewards, "tool_rewards": [], "reward_extra_info": metrics},
        }


def agent_loop(**components: Any) -> Any:
    """Returns the agent loop of one episode; verl calls this with its tokenizer, server and settings."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

    class VerlAgentLoop(VerlGame, AgentLoopBase):
        async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
            return AgentLoopOutput(**await self.play(sampling_params, row))

    return VerlAgentLoop(**components)
