"""Import time beyond gymnasium in fresh processes: processor time, which a busy machine disturbs less than the clock.

python -m benchmarks.imports
"""

import statistics
import subprocess
import sys

RUNS = 15
STATEMENTS = {
    "gymnasium": "import gymnasium",
    "envsuite": "import envsuite",
    "overcooked's engine": "import envsuite.envs.overcooked.env",
    "virtualhome's engine": "import envsuite.envs.virtualhome.env",
    "harness": "import harness.evaluate",
}


def milliseconds() -> dict[str, float]:
    """Measures the milliseconds that each statement adds to those before it, in one fresh interpreter."""
    lines = ["import time", "last = time.process_time()"]
    for statement in STATEMENTS.values():
        lines += [statement, "now = time.process_time()", "print(1000 * (now - last))", "last = now"]
    out = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    return dict(zip(STATEMENTS, map(float, out.split()), strict=True))


def main() -> None:
    runs = [milliseconds() for _ in range(RUNS)]
    print("each beyond those above it  median ms  least ms")
    for name in STATEMENTS:
        spent = [run[name] for run in runs]
        print(f"{name:26}  {statistics.median(spent):9.1f}  {min(spent):8.1f}")


if __name__ == "__main__":
    main()
