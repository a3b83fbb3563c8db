/* MPI calls within MPI calls: from a reduction and from a copied attribute; and a paused part. */
#include <mpi.h>
#include <stddef.h>

static void exchange(int tag) {
  int out = 1, in = 0;
  MPI_Sendrecv(&out, 1, MPI_INT, 0, tag, &in, 1, MPI_INT, 0, tag, MPI_COMM_SELF,
               MPI_STATUS_IGNORE);
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  exchange(4);
  for (int i = 0; i < *count; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static int copy(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag) {
  (void)comm, (void)key, (void)state, (void)in;
  exchange(5);
  *(void **)out = NULL;
  *flag = 1;
  return MPI_SUCCESS;
}

int main(int argc, char **argv) {
  int rank, key, sum;
  MPI_Op op;
  MPI_Comm made;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  exchange(1);
  MPI_Op_create(add, 1, &op);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  MPI_Op_free(&op);
  MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL);
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  MPI_Pcontrol(0);
  exchange(2);
  MPI_Pcontrol(0);
  MPI_Comm_set_name(made, "named while paused");
  MPI_Pcontrol(1);
  exchange(3);
  MPI_Comm_free(&made);
  MPI_Finalize();
  return 0;
}
