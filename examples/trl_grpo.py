"""GRPO with TRL on any registered task: the trainer is TRL's, the game is ours, unchanged.

pip install 'envsuite[trl]'
python examples/trl_grpo.py Qwen/Qwen3-0.6B TextWorld-w2-o3-q4-v0
"""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from harness.interop.trl import factory, games

model, task = sys.argv[1:3]  # a model whose chat template knows tools, and `envsuite envs` for the tasks
trainer = GRPOTrainer(
    model=model,
    args=GRPOConfig(
        output_dir="runs/trl", num_generations=8, max_completion_length=2048, max_tool_calling_iterations=24
    ),
    train_dataset=Dataset.from_list(games(task, count=1000)),
    environment_factory=factory(task, reward_mode="dense"),
)
trainer.train()
