#!/bin/bash
# A case on several hosts with plain mpiexec, where there is no batch system.
#
#     docs/job-scripts/hosts.sh node1:4,node2:4 CASE.toml [options of haloscope run]
#
# A host is followed by how many ranks it takes. All hosts need this folder and its environment under
# the same path, and this one must get into the others by ssh without a password. mpiexec is that of
# the mpi extra (MPICH). To try it on one machine, give two names of it and HYDRA_LAUNCHER=fork.
set -euo pipefail

hosts=$1
shift
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.venv/bin

ranks=0
for host in ${hosts//,/ }; do
    [[ $host == *:* ]] || { echo "$host has no number of ranks; give $host:4" >&2; exit 2; }
    ranks=$((ranks + ${host##*:}))
done

# Threads of a rank on cores. Nothing binds ranks to cores here, so each would take all of them.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$tools/mpiexec" -n "$ranks" -hosts "$hosts" "$tools/haloscope" run "$@"
