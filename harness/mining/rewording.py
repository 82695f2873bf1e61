"""Issue texts in other words: a model writes them, and those that leak or lose facts are dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.mined import library, paraphrase
from envsuite.envs.swegym.published import problem, records
from envsuite.errors import EngineFailure, UsageError
from harness import reasoning
from harness.types import Policy, Prompt, Reply

BATCH = 8
"""texts that a model writes at the same time"""
KEPT = "reworded"
FIELD = "reworded_by"
"""field of a record: the model that wrote its text; '' if the original was kept"""


def sources(path: str) -> list[dict[str, Any]]:
    """Returns the records of a file or folder, with their recipes; those of the shipped list for ''."""
    if not path:
        return library.rows()
    found = problem.find(path).values()
    return [{**record.plain(), **({"recipe": recipe} if recipe else {})} for record, recipe in found]


def check_output(output: Path, source: str) -> None:
    """Raises UsageError for a file that cannot be continued, or that is the records' own file."""
    if output.suffix != ".jsonl":
        raise UsageError(
            f"--output {output} is no .jsonl file: give it that suffix, so that records can be read from it."
        )
    if source and output.resolve() == Path(source).expanduser().resolve():
        raise UsageError(f"--output {output} is the file of the original records: name another file.")


def reword(
    rows: Sequence[Mapping[str, Any]], policy: Policy, attempts: int = 1, seed: int = 0
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yields each record, with the policy's text if it has no faults, and the faults of its last text.

    A text with faults is written up to `attempts` times. Raises EngineFailure if the model does not answer.
    """
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        parsed = [records.parse(dict(row), str(row.get("instance_id"))) for row in part]
        texts: dict[int, str] = {}
        reasons: dict[int, list[str]] = {}
        for attempt in range(attempts):
            open_places = [place for place in range(len(part)) if place not in texts]
            prompts = [_prompt(parsed[place], seed + attempt) for place in open_places]
            for place, reply in zip(open_places, policy.act(prompts) if prompts else (), strict=True):
                text = _answer(reply)
                cut = ["it was cut off"] if reply.finish_reason != "stop" else []
                reasons[place] = cut or paraphrase.faults(parsed[place], text)
                if not reasons[place]:
                    texts[place] = text
        for place, row in enumerate(part):
            text = texts.get(place, row["problem_statement"])
            author = policy.name if place in texts else ""
            yield {**row, "problem_statement": text, FIELD: author}, reasons[place]


def reword_into(
    output: Path,
    rows: Sequence[Mapping[str, Any]],
    policy: Policy,
    attempts: int = 1,
    show: Callable[[str, list[str]], None] = lambda name, reasons: None,
) -> Counter[str]:
    """Appends the records to a file that lacks them, and returns how many texts were kept or had which fault.

    Raises DataError for a file that holds something else, UsageError for a file with texts of another model.
    """
    written = records.load(output) if output.exists() else []
    known = {record.instance_id for record in written}
    others = sorted({str(record.extra[FIELD]) for record in written if record.extra.get(FIELD)} - {policy.name})
    if others:
        raise UsageError(
            f"{output} holds texts of {others[0]}, not of {policy.name}: name another file with --output, or continue "
            "with that model."
        )
    counts: Counter[str] = Counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as file:
        for row, reasons in reword([row for row in rows if row["instance_id"] not in known], policy, attempts):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            counts.update(reasons or [KEPT])
            show(row["instance_id"], reasons)
    return counts


def _prompt(record: records.Record, seed: int) -> Prompt:
    messages = [
        {"role": "system", "content": paraphrase.INSTRUCTIONS},
        {"role": "user", "content": record.problem_statement},
    ]
    return Prompt(messages, seed=seed, key=record.instance_id)


def _answer(reply: Reply) -> str:
    """Returns the text of a reply. Raises EngineFailure if there is none because the model did not answer."""
    if reply.error:
        raise EngineFailure(f"The model did not answer: {reply.error}")
    return reasoning.without(reply.text).strip()
