"""Cleanup after interrupts: 200 episodes in eight sandboxes at once, with a Ctrl-C and a SIGKILL in
between.

    `.ci/dockerd python -m benchmarks.swegym_proof [driver] [--episodes 200] [--markdown FILE]`

The expert plays planted tasks with `envsuite-eval`, eight at a time. After a third the run
receives the terminal's Ctrl-C; it is resumed, after two thirds all its processes are killed at
once, and it is resumed to its end. After each ending the containers, processes, mounts and folders
of the run are counted: there must be none after Ctrl-C and at the end, and what SIGKILL leaves must
be gone by then too. Exits with 1 if that, or an episode, fails.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

AT_ONCE = 8
REPEATS = 5
PATIENCE = 120.0
"""seconds that a run has for ending after Ctrl-C, and its leftovers after that"""


class Trial:
    """A run of `envsuite-eval` that can be watched, stopped and resumed, and whose processes and
    folders can be identified.
    """

    def __init__(self, driver: str, episodes: int, folder: Path) -> None:
        self.driver, self.episodes, self.folder = driver, episodes, folder
        self.temporary = folder / "t"
        self.temporary.mkdir(exist_ok=True)
        self.token = secrets.token_hex(8)
        self.peak = 0

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "harness.cli.eval",
            "-m",
            "expert",
            "-e",
            "SWEGym-easy",
            "--resume",
            "--baselines",
            "none",
        ]
        command += ["--set", f"sandbox={self.driver}", "-r", str(REPEATS)]
        command += ["-n", str(-(-self.episodes // REPEATS)), "-c", str(AT_ONCE), "--num-workers", str(AT_ONCE)]
        command += ["-o", str(self.folder / "runs"), "--reuse", "off"]
        environment = {**os.environ, "TMPDIR": str(self.temporary), "ENVSUITE_PROOF": self.token}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by background processes
            )

    def played(self) -> int:
        journals = (self.folder / "runs").rglob("journal.jsonl")
        return sum(file.read_bytes().count(b"\n") for file in journals)

    def wait(self, running: subprocess.Popen[bytes], until: int) -> None:
        """Waits until `count` episodes are done or the run has ended; records the largest number of
        sandboxes at once.
        """
        while running.poll() is None and self.played() < until:
            self.peak = max(self.peak, len({name.rpartition("-")[0] for name in containers()}) or self.folders())
            time.sleep(0.5)

    def folders(self) -> int:
        return sum(1 for path in self.temporary.iterdir() if path.name.startswith("envsuite-"))

    def processes(self) -> int:
        """Returns processes that inherited this run's environment, and zygotes, whose arguments name
        its folders.
        """
        results = 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                seen += os.readlink(entry / "cwd").encode()
                alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            except OSError:
                continue
            results += alive and (self.token.encode() in seen or str(self.temporary).encode() in seen)
        return results

    def mounts(self) -> int:
        """Returns mounts of this run's folders and the file systems of containers, without the
        daemon's own.
        """
        places = [str(self.temporary), *([f"{root()}/"] if self.driver == "docker" else [])]
        lines = Path("/proc/mounts").read_text().splitlines()
        return sum(any(line.split()[1].startswith(place) for place in places) for line in lines)

    def left(self) -> dict[str, int]:
        return {
            "containers": len(containers()),
            "processes": self.processes(),
            "mounts": self.mounts(),
            "folders": self.folders(),
        }

    def settled(self) -> dict[str, int]:
        """Returns what is left once nothing disappears any more: the kernel and the daemon need a
        moment.
        """
        results, deadline = self.left(), time.monotonic() + PATIENCE / 4
        while any(results.values()) and time.monotonic() < deadline:
            time.sleep(1)
            results = self.left()
        return results


def containers() -> list[str]:
    if not os.environ.get("DOCKER_HOST"):
        return []
    command = ["docker", "ps", "-a", "--filter", "label=envsuite.sandbox", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def root() -> Path:
    """Returns the daemon's folder, where it mounts what containers see."""
    message = subprocess.run(
        ["docker", "info", "--format", "{{.DockerRootDir}}"], capture_output=True, text=True, check=True
    )
    return Path(message.stdout.strip())


def prove(driver: str, episodes: int, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Returns what failed, and the observations."""
    trial, began = Trial(driver, episodes, folder), time.monotonic()
    wrong: list[str] = []
    seen: dict[str, Any] = {}
    before = trial.played()
    third = (episodes - before) // 3

    running = trial.start()
    trial.wait(running, before + third)
    os.killpg(running.pid, signal.SIGINT)
    stopped = time.monotonic()
    try:
        code = running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        code = running.wait()
    seen["Ctrl-C"] = {
        "episodes": trial.played(),
        "exit code": code,
        "seconds to end": round(time.monotonic() - stopped, 1),
    }
    seen["Ctrl-C"].update(trial.settled())
    if code != 130 or any(trial.left().values()):
        wrong.append(f"after Ctrl-C: {seen['Ctrl-C']}")

    running = trial.start()
    trial.wait(running, before + 2 * third)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    seen["SIGKILL"] = {"episodes": trial.played(), "exit code": -signal.SIGKILL, **trial.settled()}
    if seen["SIGKILL"]["processes"]:
        wrong.append(f"after SIGKILL processes go on: {seen['SIGKILL']}")

    running = trial.start()
    trial.wait(running, sys.maxsize)
    code = running.wait()
    seen["end"] = {"episodes": trial.played(), "exit code": code, **trial.settled()}
    if code or any(trial.left().values()):
        wrong.append(f"at the end: {seen['end']}")
    (results,) = (folder / "runs").rglob("results.jsonl")
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    won = sum(bool(row["success"]) for row in rows)
    if len(rows) < episodes or won < len(rows):
        wrong.append(f"{won} of {len(rows)} episodes won, and {episodes} were to be played")
    seen["won"] = f"{won} of {len(rows)}"
    seen["at once"] = trial.peak
    seen["seconds"] = round(time.monotonic() - began)
    return wrong, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="*", default=["docker"])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="goes on with the run in this folder (one driver)")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    failed, lines = False, []
    for driver in args.drivers:
        folder = args.folder or Path(
            tempfile.mkdtemp(prefix="ep-")
        )  # short: a socket's path has room for 107 characters
        wrong, seen = prove(driver, args.episodes, folder)
        failed |= bool(wrong)
        lines += table(driver, seen)
        for line in wrong:
            print(f"{driver}: {line}", file=sys.stderr)
        if wrong:
            print(f"{driver}: see {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    print("\n".join(lines))
    if args.markdown and not failed:
        about = (__doc__ or "").partition("\n\n")
        args.markdown.write_text(f"# SWE-Gym: {about[0]}\n\n{about[2].strip()}\n\n" + "\n".join(lines) + "\n")
    sys.exit(failed)


def table(driver: str, seen: dict[str, Any]) -> list[str]:
    kinds = ("containers", "processes", "mounts", "folders")
    lines = [f"| {driver}: left after | episodes done | exit code | " + " | ".join(kinds) + " |", "|---" * 7 + "|"]
    for when in ("Ctrl-C", "SIGKILL", "end"):
        row = seen[when]
        lines.append(
            f"| {when} | {row['episodes']} | {row['exit code']} | "
            + " | ".join(str(row[kind]) for kind in kinds)
            + " |"
        )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    ended = seen["Ctrl-C"]["seconds to end"]
    lines += [
        "",
        f"{seen['won']} episodes won in {seen['seconds']} s; {seen['at once']} sandboxes at once at most (a "
        f"judge's own is one); ended {ended} s "
        f"after Ctrl-C; {os.cpu_count()} cores, load average {load}.",
        "",
    ]
    return lines


if __name__ == "__main__":
    main()
