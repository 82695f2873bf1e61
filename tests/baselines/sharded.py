"""Training runs of several processes that share one model, one after another: what `tests.baselines.test_training_sharding` starts.

torchrun --nproc-per-node 2 -m tests.baselines.sharded JSON     JSON: [[recipe, folder, resume], ...]
"""

import json
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from baselines import recipe as recipes
from baselines.distributed import collectives
from baselines.train import TrainingRun
from tests import toys  # noqa: F401


def size(tensors):
    """Bytes that this process holds of them."""
    found = [one for state in tensors.values() for one in state.values()] if isinstance(tensors, dict) else tensors
    return sum(one.to_local().numel() * one.element_size() for one in found if isinstance(one, DTensor))


if __name__ == "__main__":
    torch.set_num_threads(1)
    collectives.join()
    for table, folder, resume in json.loads(sys.argv[1]):
        run = TrainingRun(recipes.parse(table), Path(folder), resume)
        run.train()
        held = {
            "actor": size(run.model.lm.parameters()),
            "moments": size(run.optimisers.actor.optimiser.state_dict()["state"]),
        }
        Path(f"{folder}/held-{torch.distributed.get_rank()}.json").write_text(json.dumps(held))
    collectives.leave()
