"""Likelihoods over admissible commands: a policy that can only say what can be done (TWOSOME, Tan et al. 2024, eq. 6).

    S_k = sum_j log p(w_j | prompt, w_<j)   over the tokens of command k, no end token
    s_k = S_k / L_k,  L_k = 1 (sum; GLAM) | number of tokens (token) | number of words (word)
    log pi(k) = s_k / T - logsumexp_i(s_i / T)

All commands of one prompt are scored in one forward pass: the prompt once, then a tree of the commands' tokens, in which
each token sees the prompt and its own ancestors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from envsuite.errors import UsageError
from harness.lm.cache import Layers, common, put_rows, roomy_cache

NORMALISATIONS = ("sum", "token", "word")


class Choice(NamedTuple):
    """A distribution over commands."""

    scores: Tensor  # [K] s_k
    logprobs: Tensor  # [K] log pi
    entropy: Tensor  # []


def choice(
    sums: Tensor, tokens: Sequence[int], words: Sequence[int], normalisation: str = "word", temperature: float = 1.0
) -> Choice:
    """The distribution over K commands from their log-likelihoods `sums` [K], numbers of tokens and of words."""
    if normalisation not in NORMALISATIONS:
        raise UsageError(f"Unknown normalisation {normalisation!r}: {', '.join(NORMALISATIONS)}.")
    lengths = {"sum": [1] * len(sums), "token": tokens, "word": words}[normalisation]
    scores = sums / torch.tensor(lengths, dtype=sums.dtype, device=sums.device)
    logprobs = (scores / temperature).log_softmax(-1)
    return Choice(scores, logprobs, -(logprobs.exp() * logprobs).sum())


def word_count(command: str) -> int:
    return max(1, len(command.split()))


class Candidate(NamedTuple):
    """A command in tokens, as it would follow its prompt."""

    keeps: int  # tokens of the prompt that stay as they are; a merge across the border may take the last ones
    ids: tuple[int, ...]  # what follows those


def candidates(tokenizer: Any, head: int, tail: str, commands: Sequence[str], lead: str = "") -> list[Candidate]:
    """Tokens of each of `commands` after a prompt of `head` tokens followed by the text `tail`.

    `lead` stands between prompt and command and is not scored. A command is tokenised with the text before it, and its
    tokens are those that are left after the longest common prefix with that text alone: right for tokenizers that merge
    a blank into the word after it, where the tokens of the bare command would be others.
    """
    texts = [tail + lead, *(tail + lead + command for command in commands)]
    base, *whole = tokenizer(texts, add_special_tokens=False)["input_ids"]
    found = []
    for command, ids in zip(commands, whole, strict=True):
        keep = common(base, ids)
        if keep == len(ids):
            raise UsageError(f"The command {command!r} has no tokens of its own: leave it out of the admissible ones.")
        found.append(Candidate(head + keep, tuple(ids[keep:])))
    return found


@dataclass
class Tree:
    """Candidates packed after their prompt, each shared beginning once."""

    tokens: list[int]  # those of the prompt that are to be computed, then the nodes
    parents: list[int]  # of each node: an index into `tokens`, or a prompt position < `first` seen in the cache
    depths: list[int]  # position of each token
    paths: list[list[int]]  # nodes of each candidate, as indices into `tokens`
    first: int  # prompt tokens that the cache covers
    fresh: int  # prompt tokens at the beginning of `tokens`


def pack(prompt: Sequence[int], found: Sequence[Candidate], covered: int) -> Tree:
    """The tree of `found` after `prompt`, whose first `covered` tokens need no computing (at most all but one)."""
    first = min(covered, min(one.keeps for one in found) - 1, len(prompt) - 1)
    tokens = list(prompt[first:])
    fresh = len(tokens)
    tree = Tree(tokens, [], list(range(first, len(prompt))), [], first, fresh)
    known: dict[tuple[int, int], int] = {}
    for one in found:
        parent = one.keeps - 1 - first  # the token before the candidate's first
        path = []
        for depth, token in enumerate(one.ids, start=one.keeps):
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


def sight(tree: Tree, device: torch.device) -> Tensor:
    """[1, 1, tokens, first + tokens]: what each computed token attends to."""
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
    network: Any, prompt: Sequence[int], found: Sequence[Candidate], prefix: Layers | None = None, covered: int = 0
) -> tuple[list[Tensor], Cache | None]:
    """Log-probs of each candidate's tokens, float32; and the cache, whose first columns are the prompt's.

    `prefix` holds keys and values of at least `covered` first tokens of the prompt. Where gradients are on, the log-probs
    can be differentiated, and there is no cache. For models whose every layer attends to all that came before
    (`harness.lm.cache.can_reuse`), with "sdpa" or "eager" attention; others are scored by `token_logprobs_apart`.
    """
    if not found:
        raise UsageError("Nothing to choose from: the list of admissible commands is empty.")
    if prefix is None:
        covered = 0
    tree = pack(prompt, found, covered)
    device = network.device
    size = len(tree.tokens)
    cache: Cache | None = None
    if prefix is not None and tree.first:
        cache = put_rows([(prefix, tree.first)], tree.first, tree.first + size)
    elif not torch.is_grad_enabled():
        cache = roomy_cache(network.config.get_text_config().num_hidden_layers, size)
    mask = sight(tree, device)
    if network.config._attn_implementation != "sdpa":
        blocked = torch.finfo(network.dtype).min
        mask = torch.zeros(mask.shape, dtype=network.dtype, device=device).masked_fill(~mask, blocked)
    offset = min(tree.parents)  # logits are wanted from the first token that a candidate follows
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
    each = logits.float().log_softmax(-1)[before, nodes]
    return [each[torch.tensor(path, device=device) - tree.fresh] for path in tree.paths], cache


def token_logprobs_apart(network: Any, prompt: Sequence[int], found: Sequence[Candidate]) -> list[Tensor]:
    """The same, each candidate read alone with the whole prompt before it: slow, and right for every causal model."""
    each = []
    for one in found:
        ids = torch.tensor([[*prompt[: one.keeps], *one.ids]], device=network.device)
        logits = network(input_ids=ids, logits_to_keep=len(one.ids) + 1, use_cache=False).logits[0, :-1]
        each.append(logits.float().log_softmax(-1).gather(-1, ids[0, -len(one.ids) :, None])[:, 0])
    return each
