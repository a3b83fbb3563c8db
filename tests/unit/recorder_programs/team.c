/* Parallel regions, loops, barriers and tasks of OpenMP, with unequal work. */
#include <omp.h>
#include <stdlib.h>
#include <time.h>

static volatile long sink;

static void nap(long milliseconds) {
  struct timespec rest = {0, milliseconds * 1000000};
  nanosleep(&rest, NULL);
}

__attribute__((noinline)) static void solve(int turns) {
  for (int turn = 0; turn < turns; turn++) {
#pragma omp parallel num_threads(3)
    {
      nap(10 * omp_get_thread_num());
#pragma omp barrier
#pragma omp for
      for (int i = 0; i < 30; i++) sink = i;
#pragma omp single
      {
#pragma omp task
        nap(1);
#pragma omp task
        nap(1);
#pragma omp taskwait
      }
#pragma omp critical
      sink = turn;
    }
    nap(40);
  }
}

int main(int count, char **arguments) {
  solve(count > 1 ? atoi(arguments[1]) : 2);
  return 0;
}
