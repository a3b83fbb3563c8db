/* One-sided communication with each kind of synchronisation; every rank writes to the next one. */
#include <mpi.h>

int main(int argc, char **argv) {
  int rank, size, flag = 0;
  double memory[16] = {0}, out[4] = {1, 2, 3, 4}, in[4], *allocated;
  MPI_Win win, other;
  MPI_Group world, target, origin;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &next, &target);
  MPI_Group_incl(world, 1, &before, &origin);
  MPI_Win_create(memory, sizeof memory, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win);

  MPI_Win_fence(0, win);
  MPI_Put(out, 4, MPI_DOUBLE, next, 0, 4, MPI_DOUBLE, win);
  MPI_Win_fence(0, win);
  MPI_Get(in, 2, MPI_DOUBLE, next, 0, 2, MPI_DOUBLE, win);
  MPI_Win_fence(0, win);

  for (int i = 0; i < 2; i++) {
    MPI_Win_post(origin, 0, win);
    MPI_Win_start(target, 0, win);
    MPI_Accumulate(out, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, MPI_SUM, win);
    MPI_Win_complete(win);
    if (i == 0) MPI_Win_wait(win);
    else
      while (!flag) MPI_Win_test(win, &flag);
  }

  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win);
  MPI_Get_accumulate(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, MPI_SUM, win);
  MPI_Win_unlock(next, win);
  MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
  MPI_Fetch_and_op(out, in, MPI_DOUBLE, next, 0, MPI_SUM, win);
  MPI_Win_unlock(next, win);
  MPI_Win_lock_all(0, win);
  MPI_Rput(out, 2, MPI_DOUBLE, next, 4, 2, MPI_DOUBLE, win, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_flush(next, win);
  MPI_Win_unlock_all(win);
  MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &other);
  MPI_Win_fence(0, other);
  MPI_Put(out, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, 1, MPI_DOUBLE, other);
  MPI_Win_fence(0, other);
  MPI_Win_free(&other);
  MPI_Win_free(&win);
  MPI_Finalize();
  return 0;
}
