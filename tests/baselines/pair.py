"""Runs a module as two processes of one process group: one interpreter imports torch and forks twice.

python -m tests.baselines.pair PORT -m MODULE [WORD ...]     sets the variables that torchrun sets
"""

import os
import runpy
import signal
import sys

import torch

import baselines.train  # noqa: F401  imported once, before the fork

COUNT = 2


def fork(port: str) -> None:
    """Returns in each child, with its variables set; the parent exits when both children have ended.

    If one child fails, the other is killed: it would wait for its peer.
    """
    children = set()
    for rank in range(COUNT):
        child = os.fork()
        if not child:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(COUNT))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            return
        children.add(child)
    failed = False
    while children:
        child, status = os.wait()
        children.discard(child)
        if status and not failed:
            failed = True
            for other in children:
                os.kill(other, signal.SIGKILL)
    os._exit(failed)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    _, port, _, module, *words = sys.argv
    fork(port)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
