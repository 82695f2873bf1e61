"""The server proof on a stub: a server that is killed in mid-run leaves the same records after --resume."""

import sys
from pathlib import Path

import pytest

from benchmarks.server_recipes import Server
from benchmarks.server_table import render
from benchmarks.servers import Size, Step, _run_step

ROOT = Path(__file__).resolve().parents[2]
START = """
import asyncio, sys
from tests.api.hashing import HashingServer

async def main():
    server = await asyncio.start_server(HashingServer(max_delay=0.1).handle, "127.0.0.1", int(sys.argv[-1]))
    await server.serve_forever()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_killed_and_resumed_run_has_the_records_of_an_undisturbed_one(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    server = Server("stub", "1", [sys.executable, "-c", START])
    for step in (Step("undisturbed", 2), Step("killed", 2, killed=True)):
        _run_step(server, step, tmp_path / "stub", Size(episodes=12, max_turns=3), anew=False)
    page = render(tmp_path)
    assert "| stub | killed | undisturbed | 12 of 12 |" in page
    (killed,) = (line for line in page.splitlines() if line.startswith("| stub | 2 |"))
    broken, _, code, episodes, broken_at_end = (cell.strip() for cell in killed.split("|")[4:9])
    assert int(broken) >= 1 and code == "2" and episodes == "12" and broken_at_end == "0"
