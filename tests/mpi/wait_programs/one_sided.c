/* Every wait of one-sided communication, each in a function of its name, on three ranks. */
#include "naps.h"

#define NAP 0.2
#define WORLD MPI_COMM_WORLD

static MPI_Win window;
static MPI_Group zero, one;
static char memory[64];

static void late_post(void) {
  if (rank == 0) {
    MARK("start");
    MPI_Win_start(one, 0, window);
    MPI_Put(data, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, window);
    MARK("complete");
    MPI_Win_complete(window);
  } else if (rank == 1) {
    nap(NAP);
    MARK("post");
    MPI_Win_post(zero, 0, window);
    MPI_Win_wait(window);
  }
}

static void early_wait(void) {
  if (rank == 0) {
    MPI_Win_start(one, 0, window);
    nap(NAP / 2);
    MPI_Put(data, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, window);
    MARK("put");
    nap(NAP / 2);
    MARK("complete");
    MPI_Win_complete(window);
  } else if (rank == 1) {
    MPI_Win_post(zero, 0, window);
    MARK("wait");
    MPI_Win_wait(window);
  }
}

static void fences(void) {
  MPI_Win_fence(0, window);
  if (rank == 1) {
    nap(NAP / 2);
    MPI_Put(data, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
    MARK("put");
    nap(NAP / 2);
  }
  MARK("fence");
  MPI_Win_fence(0, window);
}

static void lock_contention(void) {
  if (rank == 0) return;
  if (rank == 2) nap(NAP / 4);
  MARK("lock");
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  MPI_Put(data, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
  if (rank == 1) {
    MPI_Win_flush(0, window);
    nap(NAP);
  }
  MARK("unlock");
  MPI_Win_unlock(0, window);
  MARK("unlocked");
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Group all;
  MPI_Comm_group(WORLD, &all);
  MPI_Group_incl(all, 1, (int[]){0}, &zero);
  MPI_Group_incl(all, 1, (int[]){1}, &one);
  MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, WORLD, &window);
  void (*const scenes[])(void) = {late_post, early_wait, fences, lock_contention};
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
    together();
    scenes[i]();
  }
  together();
  MPI_Win_free(&window);
  end(argv);
}
