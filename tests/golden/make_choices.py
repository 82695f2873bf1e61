"""Cases of `policy_over_admissible_actions.json`: likelihoods of commands under a bigram model.

The logits after a token are its row of the table. A sequence begins with token 1; words are spelled in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.golden import formulas

WORDS = {
    "start": ["st", "art"],
    "room": ["room"],
    "look": ["lo", "ok"],
    "take": ["ta", "ke"],
    "put": ["put"],
    "the": ["the"],
    "apple": ["ap", "ple"],
    "lettuce": ["let", "tu", "ce"],
    "down": ["down"],
}
PIECES = ["<pad>", "<bos>", *dict.fromkeys(piece for pieces in WORDS.values() for piece in pieces)]
PROMPTS = ["start room the", "look the lettuce"]
COMMANDS = ["take the apple", "put the lettuce down", "look"]


def spell(text: str) -> list[int]:
    """Token ids of a text."""
    return [PIECES.index(piece) for word in text.split() for piece in WORDS[word]]


def vocabulary() -> dict[str, Any]:
    """The top-level entries of the file: pieces, words and the tables of logits."""
    rng = np.random.default_rng(20261122)
    size = len(PIECES)
    result = {name: np.round(rng.normal(size=(size, size)), 4).tolist() for name in ("old", "new")}
    return {"pieces": PIECES, "words": WORDS, "bigram_tables": result}


def token_logprobs(table: np.ndarray, prompt: str, command: str) -> list[float]:
    """Log-probs of the command's tokens after the prompt."""
    before = [1, *spell(prompt)][-1]
    logp = formulas.log_softmax(table)
    result = []
    for token in spell(command):
        result.append(float(logp[before, token]))
        before = token
    return result


def choice(logps: list[list[float]], commands: list[str], normalisation: str) -> dict[str, Any]:
    """The distribution over commands: likelihood over number of words, of tokens, or 1, through a softmax."""
    sizes = {
        "sum": [1] * len(commands),
        "token": [len(row) for row in logps],
        "word": [len(command.split()) for command in commands],
    }[normalisation]
    scores = np.array([sum(row) / size for row, size in zip(logps, sizes, strict=True)])
    return {"scores": scores, "log_probs": formulas.log_softmax(scores), "entropy": formulas.entropy(scores)}


def cases(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    bigrams = {name: np.array(table) for name, table in vocabulary()["bigram_tables"].items()}
    sets = {"old": [COMMANDS, COMMANDS], "new": [COMMANDS, COMMANDS], "unequal_sets": [COMMANDS[:2], COMMANDS]}
    for name, commands in sets.items():
        table = bigrams.get(name, bigrams["old"])
        logps = [[token_logprobs(table, p, c) for c in row] for p, row in zip(PROMPTS, commands, strict=True)]
        inputs = {
            "prompts": PROMPTS,
            "actions": commands,
            "token_logps": logps,
            "n_words": [[len(command.split()) for command in row] for row in commands],
            "bigram_table": name if name in bigrams else "old",
        }
        for kind in ("token", "word", "sum"):
            label = f"twosome_{kind}_{name}" if name in bigrams else f"twosome_{name}_{kind}"
            expected = [choice(row, own, kind) for row, own in zip(logps, commands, strict=True)]
            yield {"name": label, "params": {"normalisation": kind}, "inputs": inputs, "expected": expected}
    for k, command in enumerate(COMMANDS):
        first = [len(spell(prompt)) for prompt in PROMPTS]  # the last token of the prompt, after token 1
        expected = {
            "ratio_token_log_probs": [token_logprobs(bigrams["old"], prompt, command) for prompt in PROMPTS],
            "value_read_at_input_position": [[at + j for j in range(len(spell(command)))] for at in first],
        }
        inputs = {"prompts": PROMPTS, "chosen": [command] * 2}
        yield {"name": f"adrl_choice{k}", "params": {}, "inputs": inputs, "expected": expected}
    logps = [token_logprobs(bigrams["new"], "start room", command) for command in COMMANDS]
    result = choice(logps, COMMANDS, "sum")
    expected = {"paper_scores": result["scores"], "paper_log_probs": result["log_probs"]}
    inputs = {"context": "start room", "candidates": COMMANDS, "token_logps": logps}
    yield {"name": "glam_scores", "params": {}, "inputs": inputs, "expected": expected}
    old, new = (
        choice([token_logprobs(bigrams[t], PROMPTS[0], c) for c in COMMANDS], COMMANDS, "word") for t in bigrams
    )
    advantage = np.array([0.5, -1.0, 2.0])
    loss, *_ = formulas.clipped_surrogate(new["log_probs"], old["log_probs"], advantage, 0.2, 0.2)
    inputs = {
        "old_log_probs": old["log_probs"],
        "new_log_probs": new["log_probs"],
        "advantages": advantage,
        "clip": 0.2,
    }
    yield {"name": "action_level_ratio", "params": {}, "inputs": inputs, "expected": {"per_action_loss": loss}}
