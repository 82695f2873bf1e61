"""Problem statements of generated tasks: the symptoms of the failing tests, never the place or the
cause.

Details, from most to least: `full` (the failing tests, the lines that fail and their errors),
`names` (which tests fail), `symptom` (one or two failed checks, without naming a test), `nothing`.
"""

from __future__ import annotations

import re

from envsuite.envs.swegym.generated.tasks import GeneratedTask, Symptom

DETAILS = ("full", "names", "symptom", "nothing")
_LISTED = 10
_COMPARED = re.compile(r"assert (?P<got>.+?) == (?P<want>.+)", re.DOTALL)
_RAISED = re.compile(
    r"(?P<kind>[A-Z]\w*(?:Error|Exception|Exit|Warning|Interrupt|Iteration))(?:: (?P<words>.*))?", re.DOTALL
)


def write(task: GeneratedTask, detail: str, visible: bool) -> str:
    """Returns the issue's text. `visible`: the failing tests are in the repository."""
    parts = [f"Something in {task.package.title} does not work as it should any more."]
    if detail == "symptom":
        parts += list(dict.fromkeys(_symptom(symptom) for symptom in task.symptoms))[:2]
    if detail in ("full", "names"):
        parts.append(_listed(task.fail_to_pass))
    if detail == "full":
        parts += [_quoted(symptom) for symptom in task.symptoms]
    if not visible and detail in ("full", "names"):
        parts.append("These tests are not in your copy of the repository.")
    parts.append("Mend the package itself so that it behaves again, and break nothing that works.")
    return "\n\n".join(part for part in parts if part)


def _listed(tests: tuple[str, ...]) -> str:
    more = f"\n... and {len(tests) - _LISTED} more" if len(tests) > _LISTED else ""
    return "These tests fail:\n" + "\n".join(f"- {test}" for test in tests[:_LISTED]) + more


def _quoted(symptom: Symptom) -> str:
    quoted = "\n".join(f"    {line}" for line in [symptom.code, *symptom.error.splitlines()] if line.strip())
    return f"{symptom.test}:\n{quoted}" if quoted else ""


def _symptom(symptom: Symptom) -> str:
    """Returns a sentence or two about a failed check."""
    error = symptom.error.strip()
    first = error.splitlines()[0] if error else ""
    context = f"For `{symptom.code}`: " if symptom.code and len(symptom.code) < 160 else ""
    if "DID NOT RAISE" in first:
        return f"{context}an error that is due is not raised."
    compared = _COMPARED.match(first.removeprefix("AssertionError: "))
    if compared:
        return f"{context}the result is `{compared['got'][:160]}` where `{compared['want'][:160]}` is expected."
    raised = _RAISED.match(first)
    if raised and raised["kind"] != "AssertionError":
        words = f" ({raised['words'][:160]})" if raised["words"] else ""
        return f"{context}{raised['kind']} is raised{words}."
    return f"{context}{first[:240]}" if first else ""
