#!/usr/bin/env bash
# sbatch examples/slurm.sh: a Ray cluster inside the allocation, then one evaluation on it. Cut by the time limit, submit it again.
#SBATCH --job-name=envsuite
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
set -euo pipefail
source "$HOME/envsuite/bin/activate"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I | awk '{print $1}'):6379

until_alive() { # until so many nodes have joined, at most five minutes
  for _ in $(seq 60); do
    alive=$(ray status --address "$address" 2>/dev/null | awk '/^(Active|Idle):/ {on=1} /^Pending:/ {on=0} on && $1 ~ /^[0-9]+$/ {n+=$1} END {print n+0}') || alive=0
    if [ "$alive" -ge "$1" ]; then return; fi
    sleep 5
  done
  echo "error: $alive of $1 nodes joined the cluster at $address in five minutes" >&2
  exit 1
}

srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --block &
until_alive 1
workers=$((SLURM_NNODES - 1))
if [ "$workers" -gt 0 ]; then
  srun --nodes="$workers" --ntasks="$workers" --exclude="$head" \
    ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
  until_alive "$SLURM_NNODES"
fi
envsuite-eval --model expert --env alfworld --executor ray --ray-address "$address" -c 512 --resume
