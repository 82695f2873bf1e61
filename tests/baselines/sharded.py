"""Training runs of several processes that share a model, started by `test_training_sharding`.

python -m tests.baselines.pair PORT -m tests.baselines.sharded JSON     JSON: [[recipe, folder, resume], ...]
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
    """Returns the bytes of sharded tensors that this process holds."""
    held_tensors = (
        [tensor for state in tensors.values() for tensor in state.values()] if isinstance(tensors, dict) else tensors
    )
    return sum(
        tensor.to_local().numel() * tensor.element_size() for tensor in held_tensors if isinstance(tensor, DTensor)
    )


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
