"""Finished runs in other tools: rows, a dataset, an inspect log.

envsuite data export RUN --to parquet -o run.parquet
envsuite data export RUN --to inspect -o run.eval
python examples/read_exports.py run.parquet run.eval
"""

import sys

import pyarrow.parquet
from inspect_ai.log import read_eval_log

rows = pyarrow.parquet.read_table(sys.argv[1], columns=["task", "seed", "success", "num_turns"]).to_pylist()
print(f"{len(rows)} episodes of {rows[0]['task']}, {sum(row['success'] for row in rows)} solved")

log = read_eval_log(sys.argv[2])
for score in log.results.scores:
    print(f"{score.name}: {score.metrics['mean'].value:.3f}, n={log.results.completed_samples}")
