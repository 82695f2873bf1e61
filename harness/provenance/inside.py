"""The program that runs in the sandbox: reads, replays and renders one folder.

`handle` gets the paths as JSON and returns its findings as JSON. It is loaded as a file, without its package.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

MOST_DIFFERENCES = 20
"""differences that are reported"""


def handle(payload: bytes) -> bytes:
    """Returns the findings about a folder, or an `error` with one line."""
    job = json.loads(payload)
    site = tempfile.mkdtemp(prefix="site-")
    for package in job["packages"]:  # Landlock does not let a run list the folder that holds them
        os.symlink(package, os.path.join(site, os.path.basename(package)))
    sys.path.insert(0, site)
    os.environ.update(job["environment"], ENVSUITE_CACHE=tempfile.mkdtemp(prefix="cache-"))
    from envsuite.errors import EnvsuiteError

    try:
        return json.dumps(examine(Path(job["folder"]), job["outside"])).encode()
    except (EnvsuiteError, ModuleNotFoundError) as error:
        return json.dumps({"error": str(error)}).encode()


def examine(folder: Path, outside: bool) -> dict[str, Any]:
    """Replays the records of a folder, checks its protocol, and renders its report.

    Records whose commands are programs are not replayed; raises UsageError if there are any and nobody replays them
    `outside`.
    """
    from envsuite.errors import UsageError
    from harness import records, report
    from harness.provenance import replay
    from harness.suites import leaderboards

    file = records.results_file(folder)
    board = leaderboards.read(folder) if (folder / "metadata.json").exists() else None
    rows: dict[Any, list[Any]] = {}
    for record in board.records if board else records.read_results(file):
        rows.setdefault(leaderboards.entry_key(record), []).append(record)
    tasks = {key[0] for key in rows}
    programs = set(filter(replay.runs_programs, tasks))
    if programs and not outside:
        raise UsageError(
            f"{folder} holds records whose commands are programs ({', '.join(sorted(programs))}), and the sandboxes of "
            "these programs cannot start inside another one: add --replay-outside to replay such records in this "
            "process, as envsuite replay does."
        )
    differences = list(leaderboards.faults(board)) if board else []
    counts: dict[Any, int] = {}
    players = board.computed if board else ()
    verdicts = replay.check(file, num_workers=0, players=players, only=lambda task_id: task_id not in programs)
    for verdict in () if tasks and tasks <= programs else verdicts:
        record, difference = verdict
        key = leaderboards.entry_key(record) if "knobs" in record else None
        if difference:
            differences.append(f"{verdict.name}: {difference}")
        else:
            counts[key] = counts.get(key, 0) + 1
    page = report.render(report.gather([folder]), "verification", 1, 1.0, 60.0)
    return {
        "entries": [
            {
                "task": key[0],
                "knobs": json.loads(key[1]),
                "model": key[2],
                "records": len(group),
                "replayed": counts.get(key, 0),
            }
            for key, group in sorted(rows.items())
        ],
        "differences": differences[:MOST_DIFFERENCES],
        "differ": len(differences),
        "rendered_bytes": len(page.encode()),
    }
