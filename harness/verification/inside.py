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
    """Returns the findings about a folder, or an `error` with one line.

    They are `needs_sandbox` alone if the records' own programs need sandboxes, which cannot start inside this one.
    """
    job = json.loads(payload)
    site = tempfile.mkdtemp(prefix="site-")
    for package in job["packages"]:  # Landlock does not let a run list the folder that holds them
        os.symlink(package, os.path.join(site, os.path.basename(package)))
    sys.path.insert(0, site)
    os.environ.update(job["environment"], ENVSUITE_CACHE=tempfile.mkdtemp(prefix="cache-"))
    from envsuite.errors import EnvsuiteError
    from envsuite.sandbox.drivers import NoSandbox

    try:
        return json.dumps(examine(Path(job["folder"]), job["replays"])).encode()
    except NoSandbox:
        return json.dumps({"needs_sandbox": True}).encode()
    except (EnvsuiteError, ModuleNotFoundError) as error:
        return json.dumps({"error": str(error)}).encode()


def examine(folder: Path, replays: bool) -> dict[str, Any]:
    """Replays every record of a folder if `replays`, checks its protocol, and renders its report."""
    from harness import records, replay, report
    from harness.suites import certificates, leaderboards

    file = records.results_file(folder)
    board = leaderboards.read(folder) if (folder / "metadata.json").exists() else None
    differences = list(leaderboards.faults(board)) if board else []
    rows: dict[Any, list[Any]] = {}
    counts: dict[Any, int] = {}
    players = board.computed if board else ()
    for verdict in replay.check(file, num_workers=0, players=players) if replays else ():
        record, difference = verdict
        key = leaderboards.entry_key(record) if "knobs" in record else None
        if difference:
            differences.append(f"{verdict.place}: {difference}")
        else:
            counts[key] = counts.get(key, 0) + 1
    for record in board.records if board else records.read_results(file):
        rows.setdefault(leaderboards.entry_key(record), []).append(record)
    page = report.render(report.gather([folder]), "verification", 1, 1.0, 60.0)
    return {
        "entries": [
            {
                "task": key[0],
                "knobs": json.loads(key[1]),
                "model": key[2],
                "records": len(group),
                "replayed": counts.get(key, 0),
                "sha256": certificates.digest_of_records(group),
            }
            for key, group in sorted(rows.items())
        ],
        "differences": differences[:MOST_DIFFERENCES],
        "differ": len(differences),
        "rendered_bytes": len(page.encode()),
    }
