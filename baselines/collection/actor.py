"""The model being trained, as the policy that plays: in this process, or on servers that hold its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from baselines.model import Model
from baselines.recipe import Acting
from harness.lm.template import Template
from harness.policies.hf import HFPolicy, end_tokens
from harness.policies.score import ScorePolicy
from harness.prompting.prompting import Prompting
from harness.types import Prompt, Reply, Trajectory

if TYPE_CHECKING:
    from harness.policies.tokens import TokensPolicy


def template(model: Model, prompting: Prompting) -> Template:
    """How prompts are spelled."""
    return Template(model.tokenizer, end_tokens(model.lm, model.tokenizer), prompting.thinking)


class Actor:
    """Samples with the present weights; forget it after an update, for what it computed is stale then.

    `servers`: what a `TokensPolicy` needs to ask servers in place of this process (`Servers.options`).
    """

    name, advice_kind, deterministic = "actor", "", False

    def __init__(
        self,
        model: Model,
        acting: Acting,
        prompting: Prompting,
        temperature: float,
        servers: dict[str, Any] | None = None,
    ) -> None:
        self.prompting = prompting
        model.lm.eval()
        options: dict[str, Any] = {
            "temperature": temperature,
            "top_p": acting.top_p,
            "max_tokens": acting.max_tokens,
            "thinking": prompting.thinking,
            "context": acting.context or None,
        }
        self.policy: HFPolicy | TokensPolicy
        if servers is not None:
            from harness.policies.tokens import TokensPolicy

            options["context"] = acting.context or getattr(
                model.lm.config.get_text_config(), "max_position_embeddings", None
            )
            ends = end_tokens(model.lm, model.tokenizer)
            self.policy = TokensPolicy(
                tokenizer=model.tokenizer, end_ids=ends, stop=prompting.stop, **options, **servers
            )
            self.template = self.policy.template
            return
        # Without history a free reply shares too little to keep; scored commands share the rules even then.
        options["prefix_reuse"] = prompting.history != 0 or acting.choose == "admissible"
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
        """Gives back memory and connections."""
        if isinstance(self.policy, HFPolicy):
            self.policy.forget()
        else:
            self.policy.close()
