/* How far this rank's clock is from that of rank 0, at the begin and at the end of a run.
 *
 * The ranks of a host are one group: the recorder's clocks all follow that of the host's system, so
 * that messages would add noise only. The first ranks of the groups compare their clocks along a
 * binomial tree, in O(log groups) rounds: each asks its parent ten times, takes the fastest answer,
 * and assumes that the parent read its clock in the middle of it. The others of a group follow
 * from its first, through the system's clock. Ranks of rank 0's host say nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mpi_tracer.h"

enum { TIMES = 10, TAG = 7 };

struct answer {
  double seconds; /* the parent's clock */
  double offset;  /* of the parent's clock from that of rank 0 */
  double round_trip;
};

static MPI_Comm everyone = MPI_COMM_NULL; /* a communicator of the measurement's own */
static MPI_Comm group = MPI_COMM_NULL, heads = MPI_COMM_NULL;

static double seconds(void) { return (double)hs_ticks() / hs_ticks_per_second(); }

/* How far this rank's clock is ahead of the system's own, which all ranks of a host share: the
 * rates of their counters are known to a few millionths only. */
static double ahead(void) {
  double best = 0, shortest = -1;
  for (int turn = 0; turn < TIMES; turn++) {
    struct timespec time;
    const double begun = seconds();
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    const double ended = seconds();
    if (shortest < 0 || ended - begun < shortest) {
      shortest = ended - begun;
      best = begun + shortest / 2 - ((double)time.tv_sec + 1e-9 * (double)time.tv_nsec);
    }
  }
  return best;
}

/* Identity of this rank's clock: the running system, and its view of the time. */
static uint64_t clock_identity(int rank) {
  char text[MPI_MAX_PROCESSOR_NAME + 1] = "";
  int length = 0;
  uint64_t hash = 1;
  const char *setting = getenv("HALOSCOPE_CLOCKS"); /* "each": tests take every rank's for another */
  if (setting && strcmp(setting, "each") == 0) return hs_mix((uint64_t)rank + 1);
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file) {
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
  }
  if (text[0] == '\0') PMPI_Get_processor_name(text, &length);
  for (const char *at = text; *at; at++) hash = hs_mix(hash ^ (uint64_t)(unsigned char)*at);
  const ssize_t link_length = readlink("/proc/self/ns/time", text, sizeof text);
  for (ssize_t at = 0; at < link_length; at++) hash = hs_mix(hash ^ (uint64_t)(unsigned char)text[at]);
  return hash;
}

static void make_groups(void) {
  int rank, place;
  MPI_Comm half;
  if (hs_carriers == MPI_COMM_NULL) return;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint64_t mine = clock_identity(rank);
  /* One clock for all, as on one host: nothing to compare, nothing to keep. */
  uint64_t own[2] = {mine, ~mine}, least[2];
  PMPI_Allreduce(own, least, 2, MPI_UINT64_T, MPI_MIN, hs_carriers);
  if (least[0] == ~least[1]) return;
  PMPI_Comm_dup(hs_carriers, &everyone);
  /* A colour has 31 bits: too few to tell the hosts of a large machine apart for sure. */
  PMPI_Comm_split(everyone, (int)(mine >> 33), rank, &half);
  PMPI_Comm_split(half, (int)(mine & 0x7fffffff), rank, &group);
  PMPI_Comm_free(&half);
  PMPI_Comm_rank(group, &place);
  PMPI_Comm_split(everyone, place == 0 ? 0 : MPI_UNDEFINED, rank, &heads);
}

static struct answer ask(int parent) {
  struct answer best = {0, 0, 0}, answer;
  double middle = 0;
  for (int turn = 0; turn < TIMES; turn++) {
    const double begun = seconds();
    PMPI_Send(&begun, 1, MPI_DOUBLE, parent, TAG, heads);
    PMPI_Recv(&answer, 3, MPI_DOUBLE, parent, TAG, heads, MPI_STATUS_IGNORE);
    const double ended = seconds();
    if (turn == 0 || ended - begun < best.round_trip) {
      best = answer;
      best.round_trip = ended - begun;
      middle = begun + (ended - begun) / 2;
    }
  }
  best.offset += best.seconds - middle;
  return best;
}

static void serve(int child, double offset) {
  double begun;
  for (int turn = 0; turn < TIMES; turn++) {
    PMPI_Recv(&begun, 1, MPI_DOUBLE, child, TAG, heads, MPI_STATUS_IGNORE);
    const struct answer answer = {seconds(), offset, 0};
    PMPI_Send(&answer, 3, MPI_DOUBLE, child, TAG, heads);
  }
}

static struct answer along_the_tree(void) {
  struct answer comparison = {0, 0, 0};
  int rank, size, step = 1;
  PMPI_Comm_rank(heads, &rank);
  PMPI_Comm_size(heads, &size);
  while (step < size) step *= 2;
  for (step /= 2; step >= 1; step /= 2) {
    if (rank % (2 * step) == 0 && rank + step < size) serve(rank + step, comparison.offset);
    else if (rank % (2 * step) == step) comparison = ask(rank - step);
  }
  return comparison;
}

void hs_compare_clocks(void) {
  static int begun;
  char line[160];
  struct answer comparison = {0, 0, 0};
  int first = 0;
  const uint32_t region = hs_region("comparison of clocks", "measurement", "clock", "", 0);
  if (HS_RECORDED) hs_enter(region, NULL);
  if (!begun) make_groups();
  begun = 1;
  if (everyone != MPI_COMM_NULL) {
    if (heads != MPI_COMM_NULL) {
      comparison = along_the_tree();
      PMPI_Comm_rank(heads, &first);
    }
    const double own = ahead();
    comparison.offset += own;
    PMPI_Bcast(&first, 1, MPI_INT, 0, group);
    PMPI_Bcast(&comparison, 3, MPI_DOUBLE, 0, group);
    comparison.offset -= own;
    if (first != 0) {
      snprintf(line, sizeof line, "{\"offset\": %.9e, \"at\": %llu, \"round_trip\": %.3e}",
               comparison.offset, (unsigned long long)hs_ticks(), comparison.round_trip);
      hs_define(line);
    }
  }
  if (HS_RECORDED) hs_leave(region);
}

/* ---- the cost of recording MPI calls: runs the work of a wrapper without the call, so that no
 * message is sent ---- */

static int own_rank;
static MPI_Status came; /* of an empty message from oneself */

static inline void open_call(void) {
  hs_mpi_thread.inside = HS_FRAME;
  hs_enter(0, NULL);
}
static inline void close_call(void) {
  hs_leave(0);
  hs_mpi_thread.inside = NULL;
}

static void call(void) {
  open_call();
  close_call();
}
static void send_call(void) {
  open_call();
  hs_record_send(0, 0, own_rank, 0, MPI_COMM_WORLD);
  close_call();
}
static void receive_call(void) {
  open_call();
  hs_record_receive(0, MPI_SUCCESS, &came, hs_comm_of(MPI_COMM_WORLD));
  close_call();
}

void hs_record_cost(int rank) {
  char line[240];
  double within[3], beyond[3];
  void (*const calls[3])(void) = {call, send_call, receive_call};
  const char *const outer = hs_mpi_thread.inside;
  own_rank = rank;
  if (PMPI_Recv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &came) != MPI_SUCCESS) return;
  came.MPI_SOURCE = rank;
  came.MPI_TAG = 0;
  for (int which = 0; which < 3; which++) {
    const int done = hs_rehearse(calls[which], &within[which], &beyond[which]);
    hs_mpi_thread.inside = outer;
    if (!done) return;
  }
  /* Cost of the messages beyond the call. */
  for (int which = 1; which < 3; which++) {
    within[which] = within[which] > within[0] ? within[which] - within[0] : 0;
    beyond[which] = beyond[which] > beyond[0] ? beyond[which] - beyond[0] : 0;
  }
  snprintf(line, sizeof line,
           "{\"recording\": \"mpi\", \"call\": [%.3e, %.3e], \"before\": [%.3e, %.3e],"
           " \"after\": [%.3e, %.3e]}",
           within[0], beyond[0], within[1], beyond[1], within[2], beyond[2]);
  hs_define(line);
}
