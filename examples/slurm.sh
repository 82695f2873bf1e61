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
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=6379 --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
  ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
envsuite-eval --model expert --env alfworld --executor ray --ray-address "$address" -c 512 --resume
