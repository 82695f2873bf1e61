"""The model being trained, as the policy that plays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baselines.model import Model
from baselines.recipe import Acting
from harness.policies.hf import HFPolicy
from harness.policies.score import ScorePolicy
from harness.prompting import Prompting
from harness.types import Prompt, Reply, Trajectory


class Actor:
    """Samples with the present weights; forget it after an update, for what it computed is stale then."""

    name, asks, deterministic = "actor", "", False

    def __init__(self, model: Model, acting: Acting, prompting: Prompting, temperature: float) -> None:
        self.prompting = prompting
        model.lm.eval()
        options: dict[str, Any] = {
            "temperature": temperature,
            "top_p": acting.top_p,
            "max_tokens": acting.max_tokens,
            "thinking": prompting.thinking,
            "context": acting.context or None,
            # Without history a free reply shares too little to keep; scored commands share the rules even then.
            "prefix_reuse": prompting.history != 0 or acting.choose == "admissible",
        }
        self.policy: HFPolicy
        if acting.choose == "admissible":
            self.policy = ScorePolicy.of(model.lm, model.tokenizer, normalisation=acting.normalisation, **options)
        else:
            self.policy = HFPolicy.of(model.lm, model.tokenizer, stop=prompting.stop, **options)
        self.template = self.policy.template

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return self.policy.act(prompts)

    def next_prompt(self, run: Trajectory) -> list[int]:
        """What would be asked next, in tokens: where the value of a cut episode's final observation is read."""
        info = run.turns[-1].info
        messages = self.prompting.messages(
            run.instructions, run.objective, run.turns, run.final_observation, info["admissible_commands"]
        )
        return self.template.encode(messages).ids

    def close(self) -> None:
        self.policy.forget()
