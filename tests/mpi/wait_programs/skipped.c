/* In each scene one message or operation is not recorded, and the next one comes 0.15 s late: that is
 * the only wait. Who pairs them by number alone finds none, or another one. Two ranks. */
#include "naps.h"

enum { TO = 1, FROM = 0 };
static const double late = 0.15;

PLAIN void send(int tag) { MPI_Send(data, 8, MPI_CHAR, TO, tag, MPI_COMM_WORLD); }
PLAIN void receive(int tag) {
  MPI_Recv(data, 64, MPI_CHAR, FROM, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
PLAIN MPI_Request posted(int source, int tag) {
  MPI_Request request;
  MPI_Irecv(data, 64, MPI_CHAR, source, tag, MPI_COMM_WORLD, &request);
  return request;
}
PLAIN void send_first_and_late(int tag) {
  send(tag);
  nap(late);
  send(tag);
}

static void paused_receive(void) {
  if (rank == FROM) send_first_and_late(1);
  if (rank != TO) return;
  MPI_Pcontrol(0);
  receive(1);
  MPI_Pcontrol(1);
  receive(1);
}

static void paused_send(void) {
  if (rank == FROM) {
    MPI_Pcontrol(0);
    send(2);
    MPI_Pcontrol(1);
    nap(late);
    send(2);
  }
  if (rank == TO) receive(2), receive(2);
}

static void posted_and_completed_in_a_pause(void) {
  if (rank == FROM) send_first_and_late(3);
  if (rank != TO) return;
  MPI_Pcontrol(0);
  MPI_Request request = posted(MPI_ANY_SOURCE, 3);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Pcontrol(1);
  receive(3);
}

static void completed_in_a_pause(void) {
  if (rank == FROM) send_first_and_late(4);
  if (rank != TO) return;
  MPI_Request request = posted(FROM, 4);
  MPI_Pcontrol(0);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Pcontrol(1);
  receive(4);
}

static void posted_in_a_pause(void) {
  if (rank == FROM) send_first_and_late(5);
  if (rank != TO) return;
  MPI_Pcontrol(0);
  MPI_Request request = posted(FROM, 5);
  MPI_Pcontrol(1);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  receive(5);
}

static void completed_by_status(void) {
  int done = 0;
  if (rank == FROM) send_first_and_late(6);
  if (rank != TO) return;
  MPI_Request request = posted(FROM, 6);
  while (!done) MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
  receive(6);
}

static void given_away(void) {
  static char kept[64];
  MPI_Request request;
  if (rank == TO) {
    MPI_Irecv(kept, 64, MPI_CHAR, FROM, 7, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == FROM) send_first_and_late(7);
  if (rank == TO) receive(7);
}

static void cancelled_and_given_away(void) {
  if (rank == TO) {
    MPI_Request request = posted(FROM, 8);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == FROM) nap(late), send(8);
  if (rank == TO) receive(8);
}

static void persistent_and_cancelled(void) {
  MPI_Request request;
  if (rank == TO) {
    MPI_Recv_init(data, 64, MPI_CHAR, FROM, 9, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == FROM) nap(late), send(9);
  if (rank != TO) return;
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Start(&request);
  MPI_Cancel(&request);
  MPI_Request_free(&request);
}

static void buffered(void) {
  static char buffer[4096 + MPI_BSEND_OVERHEAD];
  void *old;
  int bytes;
  if (rank == FROM) {
    MPI_Buffer_attach(buffer, sizeof buffer);
    MPI_Bsend(data, 8, MPI_CHAR, TO, 10, MPI_COMM_WORLD);
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    MPI_Request request, flushed;
    MPI_Isend(data, 8, MPI_CHAR, TO, 10, MPI_COMM_WORLD, &request);
    MPI_Buffer_iflush(&flushed);
    MPI_Wait(&flushed, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Buffer_flush();
#else
    send(10);
#endif
    MPI_Buffer_detach(&old, &bytes);
    nap(late);
    MPI_Buffer_attach(buffer, sizeof buffer);
    MPI_Bsend(data, 8, MPI_CHAR, TO, 10, MPI_COMM_WORLD);
    MPI_Buffer_detach(&old, &bytes);
  }
  if (rank == TO) receive(10), receive(10), receive(10);
}

/* The test filters MPI_Mrecv. */
static void filtered(void) {
  MPI_Message message;
  if (rank == FROM) send_first_and_late(11);
  if (rank != TO) return;
  MPI_Mprobe(FROM, 11, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(data, 64, MPI_CHAR, &message, MPI_STATUS_IGNORE);
  receive(11);
}

static void paused_collectives(void) {
  int one = 1, sum;
  if (rank == TO) MPI_Pcontrol(0);
  for (int i = 0; i < 3; i++) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == TO) MPI_Pcontrol(1);
  if (rank == FROM) nap(late);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

PLAIN void epoch(MPI_Win window, MPI_Group other, double before) {
  if (rank == TO) {
    nap(before);
    MPI_Win_post(other, 0, window);
    MPI_Win_wait(window);
  } else {
    MPI_Win_start(other, 0, window);
    MPI_Put(data, 8, MPI_CHAR, TO, 0, 8, MPI_CHAR, window);
    MPI_Win_complete(window);
  }
}

static void paused_epoch(void) {
  MPI_Win window;
  MPI_Group all, other;
  void *memory;
  const int peer = 1 - rank;
  MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &peer, &other);
  if (rank == TO) MPI_Pcontrol(0);
  epoch(window, other, 0);
  if (rank == TO) MPI_Pcontrol(1);
  MPI_Barrier(MPI_COMM_WORLD);
  epoch(window, other, late);
  MPI_Win_free(&window);
  MPI_Group_free(&other);
  MPI_Group_free(&all);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  void (*const scenes[])(void) = {
      paused_receive, paused_send, posted_and_completed_in_a_pause, completed_in_a_pause,
      posted_in_a_pause, completed_by_status, given_away, cancelled_and_given_away,
      persistent_and_cancelled, buffered, filtered, paused_epoch, paused_collectives};
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
    together();
    scenes[i]();
  }
  together();
  end(argv);
  return 0;
}
