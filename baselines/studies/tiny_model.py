"""Makes `tiny`: a Llama model of 0.2 to 6 million parameters with a byte-pair tokenizer, from
nothing.

    python -m baselines.studies.tiny_model --env virtualhome --env overcooked -o models/tiny

The tokenizer is trained on the texts of the environments and the commands of random players and
experts, so that a command is a few tokens. The weights are random: fine-tune them on demonstrations
(`sft`) before reinforcement learning. The result is a plain Hugging Face folder.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from envsuite import registry
from envsuite.errors import UsageError
from harness import cli
from harness.evaluate import Execution, RunConfig, open_slots
from harness.lm import model_files
from harness.policies import make_policy
from harness.prompting.grammars import GRAMMARS
from harness.rollout.loop import rollout

MOST_TEXTS = 200_000
"""Texts that a tokenizer is trained on."""

SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

SIZES = {  # layers, width, heads: about 0.02, 0.15, 0.5, 2.4, 6.3 and 9.8 million parameters without embeddings
    "xxxs": (1, 32, 2),
    "xxs": (2, 64, 4),
    "xs": (2, 128, 4),
    "s": (4, 192, 6),
    "m": (6, 256, 8),
    "l": (6, 320, 8),
}
WRITTEN = ("action", "actions", "bare", "react", "tool")
"""Grammars in the corpus. Newer ones stay out of it, so that equal seeds still give equal models."""
_CALL = "call one tool, as JSON in these tags and nothing after them:\n"
_TAGGED = '<tool_call>{"name": "%s", "arguments": {"rest": "%s"}}</tool_call>'
FORMER = (
    f"Each turn, You may reason first. Then {_CALL}{_TAGGED % ('your', 'command')}",
    f"Each turn, {_CALL}{_TAGGED % ('your', 'command')}",
    _TAGGED % ("command", ""),
)
"""Texts of a former grammar. They stay in the corpus so that equal seeds still give equal models."""


def texts(patterns: Sequence[str], episodes: int = 30) -> Iterator[str]:
    """Yields the texts of tasks and the admissible commands, from games of random players and
    experts on training seeds."""
    for pattern in patterns:
        for task in registry.tasks(pattern):
            for model in ("random", "expert"):
                config = RunConfig(task, model, split="" if task.panel else next(iter(task.splits)), episodes=episodes)
                policy = make_policy(model)
                slots = open_slots(config, Execution(), episodes, policy.advice_kind)
                try:
                    for run in rollout(policy, config.all_episodes(), slots):
                        yield f"{run.instructions}\n\nObjective: {run.objective}"
                        for turn in run.turns:
                            yield turn.observation
                            yield from turn.admissible
                finally:
                    slots.close()
    for name in WRITTEN:
        grammar = GRAMMARS[name]
        yield grammar.describe(True)
        yield grammar.describe(False)
        yield grammar.spell("command", "")
    yield from FORMER


def make(
    folder: Path, corpus: Iterable[str], size: str = "s", vocabulary: int = 2048, context: int = 2048, seed: int = 0
) -> int:
    """Writes the model to `folder` atomically and returns its number of parameters. Equal seeds
    give equal weights."""
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if size not in SIZES:
        raise UsageError(f"tiny has no size {size!r}: choose {', '.join(SIZES)}.")
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(corpus, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    layers, width, heads = SIZES[size]
    config = LlamaConfig(
        vocab_size=core.get_vocab_size(),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with model_files.quiet():
            model.save_pretrained(work)
        tokenizer.save_pretrained(work)
        if folder.exists():
            shutil.rmtree(folder)
        work.chmod(0o755)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return sum(parameter.numel() for parameter in model.parameters())


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.studies.tiny_model", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "-e",
        "--env",
        action="append",
        required=True,
        help="a task whose texts the tokenizer is trained on; may be repeated",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the new model")
    parser.add_argument("--size", choices=list(SIZES), default="s", help="width and depth")
    parser.add_argument("--vocabulary", type=int, default=2048, help="tokens of its tokenizer")
    parser.add_argument("--context", type=int, default=2048, help="context length in tokens")
    parser.add_argument("--episodes", type=int, default=30, help="games per task to read (30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and games")
    parser.add_argument(
        "--module", action="append", default=[], help="Python module that registers your own environments"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits."""
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    if args.output.exists() and not (args.output / "config.json").exists():
        raise UsageError(f"{args.output} exists and is no model: choose another --output.")
    corpus = itertools.islice(texts(args.env, args.episodes), MOST_TEXTS)
    count = make(args.output, corpus, args.size, args.vocabulary, args.context, args.seed)
    print(f"{args.output}: {count / 1e6:.2f} million parameters")
    return 0


if __name__ == "__main__":
    main()
