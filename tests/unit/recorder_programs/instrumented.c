/* Functions that the compiler has instrumented, static and recursive ones among them, beside
 * regions of the header for users. Compiled with -finstrument-functions. */
#include "haloscope.h"

#include <stdlib.h>

static volatile int sink;

static __attribute__((noinline)) void leaf(int n) { sink = n; }

__attribute__((noinline)) void tiny_helper(int n) { sink = n; }

static __attribute__((noinline)) int sum(int n) { return n ? n + sum(n - 1) : 0; }

/* Two calls of itself: call sites told apart would be as many paths as calls. */
static __attribute__((noinline)) int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__attribute__((noinline)) void solve(int steps) {
  for (int i = 0; i < steps; i++) {
    HALOSCOPE_REGION_BEGIN("step");
    leaf(i);
    tiny_helper(i);
    HALOSCOPE_REGION_END("step");
  }
}

int main(int count, char **arguments) {
  int steps = count > 1 ? atoi(arguments[1]) : 10;
  solve(steps);
  leaf(0);
  leaf(1);
  sink = sum(5);
  sink = fibonacci(16);
  HALOSCOPE_PAUSE();
  leaf(2);
  HALOSCOPE_RESUME();
  return 0;
}
