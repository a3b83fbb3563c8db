/* For programs that provoke waits: naps, and marks of when something was done, by another clock
 * than the measurement's. What a rank has marked is written to FOLDER/marks-RANK at the end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLAIN static __attribute__((no_instrument_function, unused))

static struct { char name[64]; double at; } marks[256];
static int mark_count;
static int rank, size;
static char data[64] __attribute__((unused));

PLAIN double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

PLAIN void nap(double seconds) {
  const double end = now() + seconds;
  for (;;) {
    const double left = end - now();
    if (left <= 0) return;
    struct timespec t = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
    nanosleep(&t, NULL);
  }
}

/* Stands right before the call whose begin counts. */
PLAIN void mark(const char *scene, const char *what) {
  if (mark_count == 256) abort();
  snprintf(marks[mark_count].name, 64, "%s %s", scene, what);
  marks[mark_count++].at = now();
}
#define MARK(what) mark(__func__, what)

PLAIN void begin(int *argc, char ***argv) {
  if (*argc < 2) {
    fprintf(stderr, "give a folder for the marks\n");
    exit(2);
  }
  int provided;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* All ranks begin a scene at about the same time. */
PLAIN void together(void) { MPI_Barrier(MPI_COMM_WORLD); }

PLAIN void end(char **argv) {
  mark("program", "finalize");
  MPI_Finalize();
  mark("program", "finalized");
  char name[4096];
  snprintf(name, sizeof name, "%s/marks-%d", argv[1], rank);
  FILE *file = fopen(name, "w");
  if (!file) abort();
  for (int i = 0; i < mark_count; i++) fprintf(file, "%s %.9f\n", marks[i].name, marks[i].at);
  fclose(file);
}
