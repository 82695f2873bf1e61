"""Writes the digests of the reference records of Overcooked and VirtualHome.

    ENVSUITE_SHARED=... python -m tests.golden.make_traces

The records lie outside the project, in `$ENVSUITE_SHARED/golden`: they were made with software whose licence does not
let us copy them. The functions `overcooked_*` and `virtualhome_*` say which facts of a record are compared; the tests
build the same dicts from our own environments.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import SHARED
from tests.golden.digests import FOLDER, graph, spelled

Record = dict[str, Any]

VIEW = ("obs", "agent", "hold", "items", "bowl", "boards", "delivered", "avail", "facts")
MACRO_STEP = (*VIEW, "k", "success", "r", "prim", "term", "env_step")
POLICIES = ("uniform", "guided", "inapplicable", "scripted")
KITCHENS = ("v4_tomato_salad", "v3_tomato_lettuce_salad")
HOMES = ("cheese", "hamburger", "apple_pie", "pizza", "washing_plate", "laundry")
HOME_TRACES = {
    "food_preparation": "food_preparation",
    "entertainment": "entertainment",
    **{name: f"variant_{name}" for name in HOMES},
}
AUTOMATA = {"food_preparation": "automaton_v1", "entertainment": "automaton_v2"}
HOME_STEP = ("obs", "state", "adm", "was_adm", "err", "r", "success", "done")


def rows(path: Path) -> Iterator[Record]:
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def overcooked_answer(record: Record) -> Record:
    """What is compared of a reset or a step."""
    answer = {key: record[key] for key in (VIEW if record["type"] == "reset" else MACRO_STEP)}
    if record.get("term"):
        answer["return"], answer["steps"] = record["episode"]["r"], record["episode"]["l"]
    return answer


def overcooked_graph(golden: Record) -> list[str]:
    """The digests of the complete graph."""
    columns = ("states", "dist_to_success_prim", "no_effect_actions")
    views = [
        {**{key: state[key] for key in VIEW}, "distance": distance, "no_effect": idle}
        for state, distance, idle in zip(*(golden[column] for column in columns), strict=True)
    ]
    edges = [[(edge["to"], [edge["r"], edge["k"], edge["prim"]]) for edge in row] for row in golden["transitions"]]
    return graph(views, edges)


def sorted_places(state: Record) -> Record:
    """The state with its containers in alphabetical order: theirs means nothing."""
    result = json.loads(json.dumps(state))
    for key in ("food", "chips", "milk"):
        if key in result:
            result[key]["inside"].sort()
    return result


def virtualhome_answer(record: Record) -> Record:
    """What is compared of a reset or a step."""
    answer = {key: record[key] for key in HOME_STEP if key in record}
    return {**answer, "state": sorted_places(record["state"])}


def virtualhome_graph(automaton: list[Record]) -> list[str]:
    """The digests of an automaton."""
    automaton = sorted(automaton, key=lambda row: row["id"])
    views = [
        {**{key: row[key] for key in ("obs", "adm", "facts", "terminal")}, "state": sorted_places(row["state"])}
        for row in automaton
    ]
    edges = [[(edge[0], [edge[1], bool(edge[2]), edge[3]]) for edge in row.get("trans") or []] for row in automaton]
    return graph(views, edges)


def overcooked_episodes(path: Path) -> Iterator[list[Record]]:
    """The records of a file, episode by episode."""
    episode: list[Record] = []
    for record in rows(path):
        if record["type"] == "reset" and episode:
            yield episode
            episode = []
        episode.append(record)
    yield episode


def overcooked_lines(path: Path) -> list[str]:
    """The lines of the committed file for a file of records."""
    return [
        spelled([step["a"] for step in episode[1:]], [overcooked_answer(record) for record in episode])
        for episode in overcooked_episodes(path)
    ]


def virtualhome_lines(path: Path) -> list[str]:
    """The lines of the committed file for a file of records; the first is that of its actions and keys."""
    header, *episodes = rows(path)
    lines = [spelled([], [[header["actions"], header["obs_keys"]]])]
    for episode in episodes:
        answers = [virtualhome_answer(record) for record in (episode["reset"], *episode["steps"])]
        answers[-1]["return"] = episode["return"]
        lines.append(spelled([step["a"] for step in episode["steps"]], answers))
    return lines


def files() -> Iterator[tuple[str, list[str]]]:
    """The name and the lines of each committed file."""
    source = SHARED / "golden" / "overcooked" / "traces"
    for stem in KITCHENS:
        for policy in POLICIES:
            yield f"overcooked/{stem}_{policy}", overcooked_lines(source / f"{stem}_{policy}.jsonl.gz")
        (golden,) = rows(source / f"{stem}_graph.json.gz")
        yield f"overcooked/{stem}_graph", overcooked_graph(golden)
    source = SHARED / "golden" / "virtualhome" / "traces"
    for name, file in HOME_TRACES.items():
        yield f"virtualhome/{name}", virtualhome_lines(source / f"{file}.jsonl.gz")
    for name, file in AUTOMATA.items():
        _, *automaton = rows(source / f"{file}.jsonl.gz")
        yield f"virtualhome/{name}_graph", virtualhome_graph(automaton)


def main() -> None:
    for name, lines in files():
        path = FOLDER / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)} lines")


if __name__ == "__main__":
    main()
