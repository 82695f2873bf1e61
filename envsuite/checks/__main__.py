"""Second process of the determinism check: prints the transcripts of a pickled (task, knobs, seeds) from stdin."""

from __future__ import annotations

import json
import pickle
import sys

import envsuite  # noqa: F401  registers the tasks
from envsuite import registry
from envsuite.checks.determinism import transcript
from envsuite.errors import EnvsuiteError


def main() -> None:
    """Prints the transcripts of a pickled (task, knobs, seeds) read from stdin; runs in a subprocess."""
    task, knobs, seeds = pickle.loads(sys.stdin.buffer.read())
    env = registry.build(task, **knobs)
    try:
        print(json.dumps([transcript(env, seed) for seed in seeds]))
    except EnvsuiteError as error:
        sys.exit(str(error))
    finally:
        env.close()


if __name__ == "__main__":
    main()
