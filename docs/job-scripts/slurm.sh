#!/bin/bash
# A scaling study under Slurm: one srun for each rank count, all into one folder.
#
#     sbatch docs/job-scripts/slurm.sh studies/figure-08.toml runs/figure-08
#
# Submit it in the folder of the repository. The same command again goes on where a job ended.
# To adapt: the lines #SBATCH, and how the environment with haloscope is made ready.
#SBATCH --job-name=haloscope
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00
set -euo pipefail

study=$1
results=$2
per_node=$SLURM_NTASKS_PER_NODE
total=$((SLURM_NNODES * per_node))

# An environment whose mpi4py is built on the MPI that srun starts.
# module load ...
source .venv/bin/activate
# One folder for compiled kernels that all nodes see.
export HALOSCOPE_CACHE=${HALOSCOPE_CACHE:-$PWD/runs/kernels}

for ((ranks = 1; ranks <= total; ranks *= 2)); do
    nodes=$(((ranks + per_node - 1) / per_node))
    # Every rank is to see all GPUs of its node, hence not --gpus-per-task. A node is filled before
    # the next one is taken. srun does not pass --cpus-per-task on by itself since version 22.05.
    srun --nodes="$nodes" --ntasks="$ranks" --ntasks-per-node="$((ranks < per_node ? ranks : per_node))" \
        --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
        --gpus-per-node="${SLURM_GPUS_PER_NODE:-0}" --gpu-bind=none \
        --kill-on-bad-exit=1 \
        haloscope scale "$study" --out "$results" --ranks "$ranks" ||
        echo "srun with $ranks ranks ended with exit code $?" >&2
done
