/* Sends messages in every way that MPI has; the tag says which. test_measure.py knows how many.
 *
 * Every rank sends to the next one, of at least two.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { SOME = 4, MANY = 1000, STRIDES = 3 };

static int rank, size, next, before; /* this one, how many, its neighbours */
static double out[MANY], in[MANY];

static void blocking(void) {
  static char attached[1 << 16];
  void *detached;
  int length;
  MPI_Request request;
  MPI_Status status;
  if (rank % 2 == 0) MPI_Send(out, 10, MPI_DOUBLE, next, 1, MPI_COMM_WORLD);
  MPI_Recv(in, 10, MPI_DOUBLE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank % 2 == 1) MPI_Send(out, 10, MPI_DOUBLE, next, 1, MPI_COMM_WORLD);
  if (rank % 2 == 0) MPI_Ssend(out, 3, MPI_INT, next, 2, MPI_COMM_WORLD);
  MPI_Recv(in, 3, MPI_INT, before, 2, MPI_COMM_WORLD, &status);
  if (rank % 2 == 1) MPI_Ssend(out, 3, MPI_INT, next, 2, MPI_COMM_WORLD);
  MPI_Buffer_attach(attached, sizeof attached);
  MPI_Bsend(out, 2, MPI_CHAR, next, 3, MPI_COMM_WORLD);
  MPI_Recv(in, 2, MPI_CHAR, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Buffer_detach(&detached, &length);
  MPI_Irecv(in, 1, MPI_DOUBLE, before, 4, MPI_COMM_WORLD, &request);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Rsend(out, 1, MPI_DOUBLE, next, 4, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void waits(void) {
  MPI_Request requests[2 * SOME + 1];
  MPI_Status statuses[2 * SOME + 1];
  int index, count, indices[2 * SOME + 1], flag, left;
  for (int i = 0; i < SOME; i++) {
    MPI_Irecv(in + i, 1, MPI_DOUBLE, before, 5, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(out + i, 1, MPI_DOUBLE, next, 5, MPI_COMM_WORLD, &requests[SOME + i]);
  }
  requests[2 * SOME] = MPI_REQUEST_NULL;
  MPI_Waitall(2 * SOME + 1, requests, MPI_STATUSES_IGNORE);
  MPI_Waitall(2 * SOME + 1, requests, statuses); /* all are null now */

  MPI_Isend(out, 5, MPI_INT, next, 6, MPI_COMM_WORLD, requests);
  MPI_Recv(in, 20, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, statuses);
  MPI_Wait(requests, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);

  MPI_Irecv(in, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[0]);
  MPI_Issend(out, 1, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[1]);
  for (int i = 0; i < 2; i++)
    for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, i ? MPI_STATUS_IGNORE : statuses);
  MPI_Test(&requests[0], &flag, statuses);

  for (int i = 0; i < SOME; i++) {
    MPI_Irecv(in + i, 1, MPI_DOUBLE, before, 8, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(out + i, 1, MPI_DOUBLE, next, 8, MPI_COMM_WORLD, &requests[SOME + i]);
  }
  for (int i = 0; i < 2 * SOME; i++) MPI_Waitany(2 * SOME, requests, &index, statuses);
  MPI_Waitany(2 * SOME, requests, &index, MPI_STATUS_IGNORE);
  if (index != MPI_UNDEFINED) MPI_Abort(MPI_COMM_WORLD, 3);

  for (int i = 0; i < SOME; i++) {
    MPI_Irecv(in + i, 1, MPI_DOUBLE, before, 9, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(out + i, 1, MPI_DOUBLE, next, 9, MPI_COMM_WORLD, &requests[SOME + i]);
  }
  MPI_Waitsome(2 * SOME, requests, &left, indices, MPI_STATUSES_IGNORE);
  for (left = 2 * SOME - left; left > 0; left -= count)
    MPI_Testsome(2 * SOME, requests, &count, indices, statuses);
  MPI_Testsome(2 * SOME, requests, &count, indices, statuses);

  for (int i = 0; i < SOME; i++) {
    MPI_Irecv(in + i, 1, MPI_DOUBLE, before, 10, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(out + i, 1, MPI_DOUBLE, next, 10, MPI_COMM_WORLD, &requests[SOME + i]);
  }
  for (int done = 0; done < 2;) {
    MPI_Testany(2 * SOME, requests, &index, &flag, statuses);
    done += flag;
  }
  for (flag = 0; !flag;) MPI_Testall(2 * SOME, requests, &flag, MPI_STATUSES_IGNORE);
}

static void persistent(void) {
  MPI_Request requests[2];
  MPI_Status status;
  int flag;
  MPI_Send_init(out, 7, MPI_INT, next, 11, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(in, 7, MPI_INT, before, 11, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE); /* inactive ones */
  for (int i = 0; i < 3; i++) {
    MPI_Start(&requests[1]);
    MPI_Start(&requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
  MPI_Startall(2, requests);
  MPI_Wait(&requests[0], &status);
  MPI_Wait(&requests[1], &status);
  MPI_Test(&requests[1], &flag, &status);
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
  MPI_Send_init(out, 7, MPI_INT, MPI_PROC_NULL, 11, MPI_COMM_WORLD, &requests[0]);
  MPI_Start(&requests[0]);
  MPI_Wait(&requests[0], &status);
  MPI_Request_free(&requests[0]);
}

static void exchanges(void) {
  MPI_Sendrecv(out, 6, MPI_INT, next, 12, in, 6, MPI_INT, before, 12, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv_replace(in, 2, MPI_DOUBLE, next, 13, before, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(out, 6, MPI_INT, MPI_PROC_NULL, 14, in, 6, MPI_INT, MPI_PROC_NULL, 14,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
  MPI_Request request;
  MPI_Isendrecv(out, 4, MPI_INT, next, 27, in, 4, MPI_INT, before, 27, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Isendrecv_replace(in, 4, MPI_INT, next, 28, before, 28, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

static void nobody(void) {
  MPI_Request requests[4];
  MPI_Send(out, 1, MPI_INT, MPI_PROC_NULL, 14, MPI_COMM_WORLD);
  MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Isend(out, 1, MPI_INT, MPI_PROC_NULL, 14, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(in, 1, MPI_INT, MPI_PROC_NULL, 14, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(out, 0, MPI_INT, next, 15, MPI_COMM_WORLD, &requests[2]);
  MPI_Irecv(in, 0, MPI_INT, before, 15, MPI_COMM_WORLD, &requests[3]);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void probes(void) {
  MPI_Request requests[4];
  MPI_Message message;
  MPI_Status status;
  int flag = 0, count;
  for (int i = 0; i < 3; i++)
    MPI_Isend(out, i + 1, MPI_INT, next, 16 + i, MPI_COMM_WORLD, &requests[i]);
  MPI_Probe(MPI_ANY_SOURCE, 16, MPI_COMM_WORLD, &status);
  while (!flag) MPI_Iprobe(before, 16, MPI_COMM_WORLD, &flag, &status);
  MPI_Recv(in, 100, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  if (count != 1) MPI_Abort(MPI_COMM_WORLD, 4);
  MPI_Mprobe(before, 17, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(in, 100, MPI_INT, &message, MPI_STATUS_IGNORE);
  for (flag = 0; !flag;) MPI_Improbe(before, 18, MPI_COMM_WORLD, &flag, &message, &status);
  MPI_Imrecv(in, 100, MPI_INT, &message, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void cancelled(void) {
  MPI_Request requests[2];
  MPI_Status status;
  int flag;
  MPI_Irecv(in, 1, MPI_INT, before, 19, MPI_COMM_WORLD, &requests[0]);
  MPI_Cancel(&requests[0]);
  MPI_Wait(&requests[0], &status);
  MPI_Test_cancelled(&status, &flag);
  if (!flag) MPI_Abort(MPI_COMM_WORLD, 5);
  MPI_Isend(out, 1, MPI_INT, next, 20, MPI_COMM_WORLD, &requests[0]);
  MPI_Request_free(&requests[0]);
  MPI_Recv(in, 1, MPI_INT, before, 20, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
}

static void types_and_many(void) {
  static MPI_Request requests[2 * MANY];
  MPI_Datatype strided;
  MPI_Request request;
  MPI_Type_vector(STRIDES, 2, 4, MPI_DOUBLE, &strided);
  MPI_Type_commit(&strided);
  MPI_Irecv(in, 1, strided, before, 23, MPI_COMM_WORLD, &request);
  MPI_Send(out, 1, strided, next, 23, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Type_free(&strided);
  for (int i = 0; i < MANY; i++) {
    MPI_Irecv(in + i, 1, MPI_DOUBLE, before, 26, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(out + i, 1, MPI_DOUBLE, next, 26, MPI_COMM_WORLD, &requests[MANY + i]);
  }
  MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
  MPI_Irecv(in, 1, MPI_INT, 0, 25, MPI_COMM_SELF, &request);
  MPI_Send(out, 1, MPI_INT, 0, 25, MPI_COMM_SELF);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A message that does not fit is received all the same, cut short. */
static void cut_short(void) {
  MPI_Request request;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Isend(out, 8, MPI_INT, next, 29, MPI_COMM_WORLD, &request);
  if (MPI_Recv(in, 2, MPI_INT, before, 29, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS)
    MPI_Abort(MPI_COMM_WORLD, 6);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  next = (rank + 1) % size;
  before = (rank + size - 1) % size;
  blocking();
  waits();
  persistent();
  exchanges();
  nobody();
  probes();
  cancelled();
  types_and_many();
  cut_short();
  MPI_Finalize();
  return 0;
}
