"""Messages of a Python program, through mpi4py."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
after, before = (rank + 1) % ranks, (rank - 1) % ranks
sent, got = np.full(10, rank, "d"), np.empty(10, "d")
world.Sendrecv(sent, after, 5, got, before, 5)
for _ in range(2):
    request = world.Isend(sent, after, 6)
    world.Recv(got, MPI.ANY_SOURCE, 6)
    request.Wait()
    world.Barrier()
rows = world.Split(rank % 2, rank)
rows.Set_name("rows")
total = np.array([rank])
world.Allreduce(MPI.IN_PLACE, total)
world.Ibarrier().Wait()
assert world.bcast({"a": 1}) == {"a": 1}
world.send(total, after)
assert world.recv(source=before) == total
rows.Free()
print(total[0], flush=True)
