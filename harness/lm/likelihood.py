"""Likelihoods of admissible commands (TWOSOME, Tan et al. 2024, equation 6).

    S_k = sum_j log p(w_j | prompt, w_<j)   over the tokens of command k, without an end token
    s_k = S_k / L_k,  L_k = 1 (sum; GLAM) | number of tokens (token) | number of words (word)
    log pi(k) = s_k / T - logsumexp_i(s_i / T)

One forward pass scores all commands of a prompt: it computes the prompt once, and then a tree of
the commands' tokens in which each token attends to the prompt and to its own ancestors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from envsuite.errors import UsageError
from harness.lm.cache import Layers, put_rows, roomy_cache
from harness.prompting.messages import shared_prefix

NORMALISATIONS = ("sum", "token", "word")


class Choice(NamedTuple):
    """A distribution over K commands."""

    scores: Tensor  # [K] s_k
    logprobs: Tensor  # [K] log pi
    entropy: Tensor  # []


def choice(
    sums: Tensor, tokens: Sequence[int], words: Sequence[int], normalisation: str = "word", temperature: float = 1.0
) -> Choice:
    """Returns the distribution over K commands from log-likelihoods `sums` [K], token counts and
    word counts.
    """
    if normalisation not in NORMALISATIONS:
        raise UsageError(f"Unknown normalisation {normalisation!r}: {', '.join(NORMALISATIONS)}.")
    lengths = {"sum": [1] * len(sums), "token": tokens, "word": words}[normalisation]
    scores = sums / torch.tensor(lengths, dtype=sums.dtype, device=sums.device)
    logprobs = (scores / temperature).log_softmax(-1)
    return Choice(scores, logprobs, -(logprobs.exp() * logprobs).sum())


def word_count(command: str) -> int:
    """Returns the number of words, at least 1."""
    return max(1, len(command.split()))


class Candidate(NamedTuple):
    """Tokens of a command after its prompt."""

    keeps: int
    """number of unchanged prompt tokens; the last ones may merge with the command"""
    ids: tuple[int, ...]
    """tokens that follow them"""


def candidates(tokenizer: Any, head: int, tail: str, commands: Sequence[str], lead: str = "") -> list[Candidate]:
    """Returns the tokens of each command after a prompt of `head` tokens followed by the text
    `tail`.

    `lead` is the text between prompt and command, which is not scored. Each command is tokenised
    together with the text before it, and the longest common prefix with that text alone is removed.
    This is correct for tokenizers that merge a space with the next word. Raises UsageError for a
    command without tokens.
    """
    texts = [tail + lead, *(tail + lead + command for command in commands)]
    base, *complete = tokenizer(texts, add_special_tokens=False)["input_ids"]
    encoded = []
    for command, ids in zip(commands, complete, strict=True):
        keep = shared_prefix(base, ids)
        if keep == len(ids):
            raise UsageError(f"The command {command!r} has no tokens: remove it from the admissible commands.")
        encoded.append(Candidate(head + keep, tuple(ids[keep:])))
    return encoded


@dataclass
class Tree:
    """Candidates packed after their prompt; common beginnings are stored once."""

    tokens: list[int]
    """prompt tokens to compute, followed by the tree's nodes"""
    parents: list[int]
    """of each node: an index into `tokens`"""
    depths: list[int]
    """position of each token"""
    paths: list[list[int]]
    """nodes of each candidate, as indices into `tokens`"""
    first: int
    """number of prompt tokens in the cache"""
    fresh: int
    """number of prompt tokens at the start of `tokens`"""


def pack(prompt: Sequence[int], commands: Sequence[Candidate], covered: int) -> Tree:
    """Builds the tree of `commands` after `prompt`, whose first `covered` tokens are cached (at
    most all but one).
    """
    first = min(covered, min(candidate.keeps for candidate in commands) - 1, len(prompt) - 1)
    tokens = list(prompt[first:])
    fresh = len(tokens)
    tree = Tree(tokens, [], list(range(first, len(prompt))), [], first, fresh)
    known: dict[tuple[int, int], int] = {}
    for candidate in commands:
        parent = candidate.keeps - 1 - first  # the token before the candidate's first one
        path = []
        for depth, token in enumerate(candidate.ids, start=candidate.keeps):
            node = known.get((parent, token))
            if node is None:
                node = known[parent, token] = len(tokens)
                tokens.append(token)
                tree.parents.append(parent)
                tree.depths.append(depth)
            path.append(node)
            parent = node
        tree.paths.append(path)
    return tree


def attention_mask(tree: Tree, device: torch.device) -> Tensor:
    """Returns a mask [1, 1, tokens, first + tokens] that is True where a computed token attends."""
    size, fresh = len(tree.tokens), tree.fresh
    seen = torch.zeros(size, tree.first + size, dtype=torch.bool)
    seen[:, : tree.first] = True
    own = seen[:, tree.first :]
    own[:fresh, :fresh] = torch.ones(fresh, fresh, dtype=torch.bool).tril()
    for node, parent in enumerate(tree.parents, start=fresh):
        own[node] = own[parent]
        own[node, node] = True
    return seen[None, None].to(device)


def token_logprobs(
    network: Any, prompt: Sequence[int], commands: Sequence[Candidate], prefix: Layers | None = None, covered: int = 0
) -> tuple[list[Tensor], Cache | None]:
    """Returns float32 log-probs of each candidate's tokens, and the cache, which begins with the
    prompt's columns.

    `prefix` has keys and values of the first `covered` tokens of the prompt, or more. With
    gradients enabled, the log-probs are differentiable and the cache is None. Every layer of the
    model must have full attention (`harness.lm.cache.can_reuse`), implemented as "sdpa" or "eager";
    use `token_logprobs_apart` for other models.
    """
    if not commands:
        raise UsageError("The list of admissible commands is empty.")
    if prefix is None:
        covered = 0
    tree = pack(prompt, commands, covered)
    device = network.device
    size = len(tree.tokens)
    cache: Cache | None = None
    if prefix is not None and tree.first:
        cache = put_rows([(prefix, tree.first)], tree.first, tree.first + size)
    elif not torch.is_grad_enabled():
        cache = roomy_cache(network.config.get_text_config().num_hidden_layers, size)
    mask = attention_mask(tree, device)
    if network.config._attn_implementation != "sdpa":
        blocked = torch.finfo(network.dtype).min
        mask = torch.zeros(mask.shape, dtype=network.dtype, device=device).masked_fill(~mask, blocked)
    offset = min(tree.parents)  # logits are needed from the first token before a candidate
    logits = network(
        input_ids=torch.tensor([tree.tokens], device=device),
        attention_mask=mask,
        position_ids=torch.tensor([tree.depths], device=device),
        past_key_values=cache,
        use_cache=cache is not None,
        logits_to_keep=size - offset,
    ).logits[0]
    nodes = torch.tensor(tree.tokens[tree.fresh :], device=device)
    before = torch.tensor(tree.parents, device=device) - offset
    logprobs = logits.float().log_softmax(-1)[before, nodes]
    return [logprobs[torch.tensor(path, device=device) - tree.fresh] for path in tree.paths], cache


def token_logprobs_apart(network: Any, prompt: Sequence[int], commands: Sequence[Candidate]) -> list[Tensor]:
    """Returns log-probs of each candidate's tokens with one forward pass per candidate, for any
    causal model.
    """
    logprobs = []
    for candidate in commands:
        ids = torch.tensor([[*prompt[: candidate.keeps], *candidate.ids]], device=network.device)
        logits = network(input_ids=ids, logits_to_keep=len(candidate.ids) + 1, use_cache=False).logits[0, :-1]
        logprobs.append(logits.float().log_softmax(-1).gather(-1, ids[0, -len(candidate.ids) :, None])[:, 0])
    return logprobs
