"""The policy that plays training episodes: the model in this process, or servers that hold its
weights."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from baselines.collection.advice import with_advice
from baselines.networks.model import Model
from baselines.networks.snapshot import Snapshot
from baselines.recipe import Acting
from harness.lm.conversations import Conversations
from harness.lm.template import Template
from harness.policies.hf import HFPolicy, end_tokens
from harness.policies.score import ScorePolicy
from harness.prompting.prompting import Prompting
from harness.rollout.loop import next_prompt
from harness.types import Prompt, Reply, Trajectory
from harness.waiting import Forwarding

if TYPE_CHECKING:
    from baselines.collection.colocated import VLLMEngine
    from baselines.collection.tinker import TinkerSampler
    from harness.policies.tokens import TokensPolicy


def template(model: Model | Snapshot, prompting: Prompting) -> Template:
    """Returns the chat template of the model's tokenizer."""
    return Template(model.tokenizer, end_tokens(model.lm, model.tokenizer), prompting.thinking)


class Actor(Forwarding):
    """Samples replies with the weights of a model or of a snapshot. Make a new one after every
    update.

    `servers` are the options of a `TokensPolicy` that has servers generate (`Servers.options`);
    `engine` generates instead of the model: vLLM in this process, or Tinker's service. `advisor` is
    the expert whose advice is recorded in the episodes.
    """

    name, advice_kind, deterministic = "actor", "", False
    ignores_advice = True
    """The expert's advice is for a teacher (`advised_prompts`)."""

    def __init__(
        self,
        model: Model | Snapshot,
        acting: Acting,
        prompting: Prompting,
        temperature: float,
        servers: dict[str, Any] | None = None,
        engine: VLLMEngine | TinkerSampler | None = None,
        advisor: str = "",
    ) -> None:
        self.advice_kind = advisor
        self.prompting, self.model, self._stopped = prompting, model, False
        model.lm.eval()
        limit = getattr(model.lm.config.get_text_config(), "max_position_embeddings", None)
        self.context = acting.context or limit or 2**31
        self.max_tokens = acting.max_tokens
        options: dict[str, Any] = {
            "temperature": temperature,
            "top_p": acting.top_p,
            "max_tokens": acting.max_tokens,
            "thinking": prompting.thinking,
            "context": self.context,
        }
        self.policy: HFPolicy | TokensPolicy
        if servers is not None:
            from harness.policies.tokens import TokensPolicy

            ends = end_tokens(model.lm, model.tokenizer)
            self.policy = TokensPolicy(
                tokenizer=model.tokenizer, end_ids=ends, stop=prompting.stop, **options, **servers
            )
        else:
            # Without history, free replies share too little to cache; scored commands share the
            # rules even then.
            options["prefix_reuse"] = prompting.history != 0 or acting.scores_commands
            options["cache_gb"] = acting.cache_gb
            if acting.scores_commands:
                normalisation = "trie" if acting.choose == "trie" else acting.normalisation
                self.policy = ScorePolicy.of(model.lm, model.tokenizer, normalisation=normalisation, **options)
            else:
                options["decoder"] = None if engine is None else engine.decoder
                self.policy = HFPolicy.of(model.lm, model.tokenizer, stop=prompting.stop, **options)
        self.template = self.policy.template

    def next_prompt(self, run: Trajectory) -> list[int]:
        """Returns the tokens of the prompt that would follow an episode, as the policy would have
        seen it.

        The value of a truncated episode's final observation is read at its end. Like any prompt it
        loses its oldest turns if it does not fit the context; [] if even the last message alone
        leaves no room for a reply.
        """
        messages = self.prompting.messages(
            run.instructions,
            run.objective,
            run.turns,
            run.final_observation,
            run.turns[-1].info["admissible_commands"],
            labels=run.labels,
        )
        conversation = Conversations(self.template, self.max_tokens, self.context)
        key = "final"
        # Sampled replies appear as the tokens that were sampled; chosen commands are tokenised from
        # their text.
        sampled = [] if isinstance(self.policy, ScorePolicy) else run.turns
        for number, turn in enumerate(sampled):
            conversation.remember(Prompt((), key=key, turn=number), list(turn.reply.ids))
        tools = self.prompting.tools(run.tools)
        encoded, _ = conversation.fit(Prompt(messages, key=key, turn=len(run.turns), tools=tools))
        return encoded.ids if conversation.room(encoded) > 0 else []

    def advised_prompts(self, run: Trajectory) -> list[list[int]]:
        """Returns for each turn of an episode the tokens of its prompt with the expert's next command; [] if the
        expert knew none, or if the prompt leaves no room for a reply.

        Like any prompt it loses its oldest turns if it does not fit the context.
        """
        conversation = Conversations(self.template, self.max_tokens, self.context)
        prompts = []
        for number, turn in enumerate(run.turns):
            earlier = run.turns[:number]
            prompt = next_prompt(run, earlier, turn.observation, turn.admissible, self.prompting, "advised", turn.agent)
            ids: list[int] = []
            if turn.advice:
                prompt = prompt._replace(messages=with_advice(prompt.messages, turn.advice, self.prompting))
                encoded, _ = conversation.fit(prompt)
                ids = encoded.ids if conversation.room(encoded) > 0 else []
            prompts.append(ids)
            if not isinstance(self.policy, ScorePolicy):
                conversation.remember(prompt, list(turn.reply.ids))
        return prompts

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        if self._stopped:
            raise CancelledError
        return super().collect(timeout)

    def stop(self) -> None:
        """Ends the rollout with CancelledError, also one that waits for a server. Any thread may call
        this."""
        self._stopped = True
        for source in self.sources():
            source.set()

    def close(self) -> None:
        """Releases memory and connections."""
        if isinstance(self.policy, HFPolicy):
            self.policy.forget()
        else:
            self.policy.close()
