/* Calls as an MPI library would get them, from functions that were not instrumented: the callers
 * are to be found on the stack, also where frames change their size. */
#include <stdlib.h>

#include "haloscope.h"
#include "recorder_calls.h"

static uint32_t region;

__attribute__((noinline)) void MPI_Send(void) {
  hs_enter_unwound(region, __builtin_return_address(0));
  hs_leave(region);
  __asm__ volatile("");
}

__attribute__((noinline)) static void exchange(int room) {
  char values[room];
  __asm__ volatile("" ::"r"(values) : "memory");
  MPI_Send();
  __asm__ volatile("");
}

__attribute__((noinline)) void left(void) {
  exchange(16);
  __asm__ volatile("");
}

__attribute__((noinline)) void right(void) {
  exchange(16);
  __asm__ volatile("");
}

__attribute__((noinline)) void varying(int i) {
  exchange(16 + 64 * (i % 7));
  __asm__ volatile("");
}

__attribute__((noinline)) static void deep(int depth) {
  if (depth)
    deep(depth - 1);
  else
    MPI_Send();
  __asm__ volatile("");
}

int main(int count, char **arguments) {
  int turns = count > 1 ? atoi(arguments[1]) : 4;
  region = hs_region("MPI_Send", "mpi", "send", "", 0);
  for (int i = 0; i < turns; i++) {
    left();
    right();
    varying(i);
  }
  deep(3);
  HALOSCOPE_REGION_BEGIN("phase");
  left();
  HALOSCOPE_REGION_END("phase");
  return 0;
}
