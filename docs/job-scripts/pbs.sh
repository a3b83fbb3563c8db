#!/bin/bash
# A scaling study under PBS: one mpiexec for each rank count, all into one folder.
#
#     qsub -v STUDY=studies/figure-08.toml,RESULTS=runs/figure-08 docs/job-scripts/pbs.sh
#
# Submit it in the folder of the repository. The same command again goes on where a job ended.
# To adapt: the lines #PBS, and how the environment with haloscope is made ready.
#PBS -N haloscope
#PBS -l select=2:ncpus=32:mpiprocs=4:ngpus=4
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail

cd "$PBS_O_WORKDIR"
# A line for each rank that the job has room for.
total=$(wc -l < "$PBS_NODEFILE")

# An environment whose mpi4py is built on the MPI whose mpiexec follows.
# module load ...
source .venv/bin/activate
# One folder for compiled kernels that all nodes see.
export HALOSCOPE_CACHE=${HALOSCOPE_CACHE:-$PWD/runs/kernels}

for ((ranks = 1; ranks <= total; ranks *= 2)); do
    mpiexec -n "$ranks" haloscope scale "$STUDY" --out "$RESULTS" ||
        echo "mpiexec with $ranks ranks ended with exit code $?" >&2
done
