"""Import time of envsuite beyond gymnasium, in fresh processes, medians of 9.

python -m benchmarks.imports
"""

import statistics
import subprocess
import sys


def seconds(statement: str) -> float:
    """Median wall-clock of one import statement, measured inside a fresh interpreter."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(9)
    ]
    return statistics.median(runs)


def main() -> None:
    gymnasium, suite = seconds("import gymnasium"), seconds("import gymnasium, envsuite")
    harness = seconds("import gymnasium, envsuite, harness.evaluate")
    print(f"gymnasium                  {1000 * gymnasium:7.1f} ms")
    print(f"envsuite beyond it         {1000 * (suite - gymnasium):7.1f} ms")
    print(f"harness beyond these       {1000 * (harness - suite):7.1f} ms")


if __name__ == "__main__":
    main()
