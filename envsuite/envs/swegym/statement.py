"""The words of a generated task: what goes wrong, told from its failing tests, never where or why.

Details, from the most to the least: `full` (the failing tests, the lines that fail and what they say), `names` (which tests
fail), `symptom` (what one or two checks saw, without naming a test), `nothing`.
"""

from __future__ import annotations

import re

from envsuite.envs.swegym.tasks import Generated, Symptom

DETAILS = ("full", "names", "symptom", "nothing")
_LISTED = 10
_COMPARED = re.compile(r"assert (?P<got>.+?) == (?P<want>.+)", re.DOTALL)
_RAISED = re.compile(
    r"(?P<kind>[A-Z]\w*(?:Error|Exception|Exit|Warning|Interrupt|Iteration))(?:: (?P<words>.*))?", re.DOTALL
)


def write(task: Generated, detail: str, visible: bool) -> str:
    """The issue's text. `visible`: the failing tests are in the repository."""
    parts = [f"Something in {task.package.title} does not work as it should any more."]
    if detail == "symptom":
        parts += list(dict.fromkeys(_symptom(one) for one in task.symptoms))[:2]
    if detail in ("full", "names"):
        parts.append(_listed(task.fail_to_pass))
    if detail == "full":
        parts += [_quoted(one) for one in task.symptoms]
    if not visible and detail in ("full", "names"):
        parts.append("These tests are not in your copy of the repository.")
    parts.append("Mend the package itself so that it behaves again, and break nothing that works.")
    return "\n\n".join(part for part in parts if part)


def _listed(tests: tuple[str, ...]) -> str:
    more = f"\n... and {len(tests) - _LISTED} more" if len(tests) > _LISTED else ""
    return "These tests fail:\n" + "\n".join(f"- {test}" for test in tests[:_LISTED]) + more


def _quoted(one: Symptom) -> str:
    quoted = "\n".join(f"    {line}" for line in [one.code, *one.said.splitlines()] if line.strip())
    return f"{one.test}:\n{quoted}" if quoted else ""


def _symptom(one: Symptom) -> str:
    """A sentence or two of what was seen."""
    said = one.said.strip()
    first = said.splitlines()[0] if said else ""
    seen = f"For `{one.code}`: " if one.code and len(one.code) < 160 else ""
    if "DID NOT RAISE" in first:
        return f"{seen}an error that is due is not raised."
    compared = _COMPARED.match(first.removeprefix("AssertionError: "))
    if compared:
        return f"{seen}the result is `{compared['got'][:160]}` where `{compared['want'][:160]}` is expected."
    raised = _RAISED.match(first)
    if raised and raised["kind"] != "AssertionError":
        words = f" ({raised['words'][:160]})" if raised["words"] else ""
        return f"{seen}{raised['kind']} is raised{words}."
    return f"{seen}{first[:240]}" if first else ""
