#!/usr/bin/env bash
# A Ray cluster inside the allocation, then one evaluation on it; what follows the script's name is the evaluation's:
#   sbatch examples/slurm.sh -m expert -e alfworld -c 512
#   sbatch --nodes=8 --cpus-per-task=16 examples/slurm.sh -m qwen2.5-3b -e babyai --base-url http://gpu1:8000/v1
# Cut by the time limit, submit the same line again: it goes on. ENVSUITE_VENV is the environment on all nodes.
#SBATCH --job-name=envsuite
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
set -euo pipefail
source "${ENVSUITE_VENV:-$HOME/envsuite}/bin/activate"
if [ $# -eq 0 ]; then set -- --model expert --env alfworld -c 512; fi
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # since Slurm 22.05 srun does not take it over from sbatch
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes%%$'\n'*} # no pipe into head, which may close it too early for pipefail
port=$((20000 + SLURM_JOB_ID % 10000)) # another job's head may share the node
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I | awk '{print $1}'):$port

until_alive() { # until so many nodes have joined, at most five minutes
  for _ in $(seq 60); do
    alive=$(ray status --address "$address" 2>/dev/null | awk '/^(Active|Idle):/ {on=1} /^Pending:/ {on=0} on && $1 ~ /^[0-9]+$/ {n+=$1} END {print n+0}') || alive=0
    if [ "$alive" -ge "$1" ]; then return; fi
    sleep 5
  done
  echo "error: $alive of $1 nodes joined the cluster at $address in five minutes" >&2
  exit 1
}

trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT # the cluster ends with the run, or where it did not come up
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
until_alive 1
workers=$((SLURM_NNODES - 1))
if [ "$workers" -gt 0 ]; then
  srun --nodes="$workers" --ntasks="$workers" --exclude="$head" \
    ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
  until_alive "$SLURM_NNODES"
fi
envsuite-eval "$@" --executor ray --ray-address "$address" --resume
