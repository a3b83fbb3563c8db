/* Makes communicators in every way; each gets a barrier and a name, by which the test knows it. */
#include <mpi.h>
#include <stddef.h>

static int rank, size;

/* A message around the ring of a communicator, too: peers are given in its own ranks. */
static void use(MPI_Comm comm, const char *name) {
  int place, members, got;
  if (comm == MPI_COMM_NULL) return;
  MPI_Comm_set_name(comm, name);
  MPI_Comm_rank(comm, &place);
  MPI_Comm_size(comm, &members);
  MPI_Barrier(comm);
  MPI_Sendrecv(&place, 1, MPI_INT, (place + 1) % members, 1, &got, 1, MPI_INT,
               (place + members - 1) % members, 1, comm, MPI_STATUS_IGNORE);
}

static void twice(MPI_Comm comm) {
  for (int i = 0; i < 2; i++) {
    MPI_Comm half;
    MPI_Comm_split(comm, rank % 2, -rank, &half);
    use(half, i ? "half again" : "half");
    MPI_Comm_free(&half);
  }
}

int main(int argc, char **argv) {
  MPI_Comm copy, later, some, group_comm, grid, line, between, merged, shared, graph, single;
  MPI_Request request;
  MPI_Group world, part;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  use(copy, "copy");
  MPI_Comm_idup(copy, &later, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  use(later, "later");
  twice(copy);
  MPI_Comm_split(copy, rank == 0 ? MPI_UNDEFINED : 0, 0, &some);
  use(some, "all but the first");
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
  use(shared, "of this host");
  /* Only the first two take part, so that the others know nothing of it. */
  const int first_two[] = {1, 0};
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 2, first_two, &part);
  for (int i = 0; rank < 2 && i < 2; i++) {
    MPI_Comm_create_group(MPI_COMM_WORLD, part, 5, &group_comm);
    use(group_comm, i ? "two again" : "two");
    MPI_Comm_free(&group_comm);
  }
  MPI_Comm_create(MPI_COMM_WORLD, part, &some);
  use(some, "created");
  const int dims[] = {2, size / 2}, periods[] = {0, 1}, remain[] = {0, 1};
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  use(grid, "grid");
  MPI_Cart_sub(grid, remain, &line);
  use(line, "line");
  const int next[] = {(rank + 1) % size}, before[] = {(rank + size - 1) % size};
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, before, MPI_UNWEIGHTED, 1, next,
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
  use(graph, "graph");
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &some);
  MPI_Intercomm_create(some, 0, MPI_COMM_WORLD, (rank + 1) % 2, 9, &between);
  MPI_Comm_set_name(between, "between");
  /* Ranks of the other side: messages go there and come from there. */
  int place, far, got;
  MPI_Comm_rank(between, &place);
  MPI_Comm_remote_size(between, &far);
  if (place < far)
    MPI_Sendrecv(&place, 1, MPI_INT, place, 2, &got, 1, MPI_INT, place, 2, between,
                 MPI_STATUS_IGNORE);
  MPI_Barrier(between);
  MPI_Intercomm_merge(between, rank % 2, &merged);
  use(merged, "merged");
  MPI_Comm_dup(MPI_COMM_SELF, &single);
  use(single, "single");
  /* A message that is under way when its communicator is freed. */
  MPI_Request requests[2];
  int sent = rank;
  MPI_Irecv(&got, 1, MPI_INT, before[0], 3, copy, &requests[0]);
  MPI_Comm used = copy;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Isend(&sent, 1, MPI_INT, next[0], 3, copy, &requests[1]);
  MPI_Comm_free(&used);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Finalize();
  return 0;
}
