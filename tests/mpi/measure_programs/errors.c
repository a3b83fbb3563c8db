/* Says "kept" where errors of MPI and the C library's error number are what they are unmeasured. */
#include <errno.h>
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>

static jmp_buf back;

static void jump(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  (void)code;
  longjmp(back, 1);
}

int main(int argc, char **argv) {
  int rank, got, good = 1, class = 0;
  MPI_Errhandler handler;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int i = 0; i < 100000; i++) { /* enough for buffers to be flushed meanwhile */
    errno = 77;
    MPI_Sendrecv(&rank, 1, MPI_INT, rank, 1, &got, 1, MPI_INT, rank, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    good &= errno == 77;
  }
  const int code = MPI_Send(&rank, 1, MPI_INT, 1000, 1, MPI_COMM_WORLD);
  MPI_Error_class(code, &class);
  good &= class == MPI_ERR_RANK;
  MPI_Comm_create_errhandler(jump, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  /* A handler that never returns, then calls that are measured as before. */
  for (volatile int i = 0; i < 3; i++)
    if (setjmp(back) == 0) MPI_Send(&rank, 1, MPI_INT, 1000, 1, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  printf(good ? "kept\n" : "changed\n");
  MPI_Finalize();
  return 0;
}
