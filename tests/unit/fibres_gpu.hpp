// A GPU with a copy engine, one block after the other, the last one first. The threads of a block are
// fibres of one processor thread: each runs until it waits, so that barriers cost next to nothing.
#include <sched.h>
#include <ucontext.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>
#define ON_GPU 1
#define __CUDA_ARCH__ 900
#define KERNEL_BOUNDS(bounds, name, ...) extern "C" void name(__VA_ARGS__)
#define INLINE static inline
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(type, name) type *const name = reinterpret_cast<type *>(memory)
#define SHARED(type, name, count) static type name[count]
#define FOR_EACH(i, n) \
  for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < (long)(n); i += gridDim.x * blockDim.x)
#define BARRIER() meet()

struct Index {
  unsigned x, y, z;
};
static Index threadIdx, blockIdx, gridDim, blockDim;
alignas(128) static unsigned char memory[1 << 18];
static ucontext_t scheduler;
static std::vector<ucontext_t> fibres;
static std::vector<bool> done;
static std::function<void()> body;
static unsigned running, arrived, meetings;

INLINE void let_others_run() { swapcontext(&fibres[running], &scheduler); }
// All threads of a block live until its end.
INLINE void meet() {
  const unsigned meeting = meetings;
  if (++arrived == fibres.size()) {
    arrived = 0;
    ++meetings;
  }
  while (meetings == meeting) let_others_run();
}
static void begin() {
  body();
  done[running] = true;
  let_others_run();
}

// Runs a kernel; false if it wrote beyond its shared memory.
static bool launch(Index grid, Index block, long shared, std::function<void()> kernel) {
  const unsigned threads = block.x * block.y;
  static std::vector<std::vector<char>> stacks;
  stacks.resize(threads, std::vector<char>(1 << 16));
  body = kernel;
  gridDim = grid;
  blockDim = block;
  for (unsigned b = grid.x * grid.y * grid.z; b-- > 0;) {
    std::memset(memory, 0xff, sizeof memory);  // no numbers
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    arrived = meetings = 0;
    fibres.resize(threads);
    done.assign(threads, false);
    for (unsigned t = 0; t < threads; t++) {
      getcontext(&fibres[t]);
      fibres[t].uc_stack.ss_sp = stacks[t].data();
      fibres[t].uc_stack.ss_size = stacks[t].size();
      fibres[t].uc_link = nullptr;
      makecontext(&fibres[t], begin, 0);
    }
    for (unsigned left = threads; left > 0;)
      for (running = 0; running < threads; running++)
        if (!done[running]) {
          threadIdx = {running % block.x, running / block.x, 0};
          swapcontext(&scheduler, &fibres[running]);
          left -= done[running];
        }
    for (long n = shared; n < (long)sizeof memory; n++)
      if (memory[n] != 0xff) return false;
  }
  return true;
}

INLINE double fused(double a, double b, double c) { return std::fma(a, b, c); }
INLINE float fused(float a, float b, float c) { return std::fmaf(a, b, c); }
INLINE double square_root(double a) { return std::sqrt(a); }
INLINE float square_root(float a) { return std::sqrt(a); }
INLINE double root_of_normal(double a) { return std::sqrt(a); }
INLINE float root_of_normal(float a) { return std::sqrt(a); }
INLINE double reciprocal_of_normal(double a) { return 1 / a; }
INLINE float reciprocal_of_normal(float a) { return 1 / a; }
template <typename T>
INLINE T absolute(T a) { return std::fabs(a); }
template <typename T>
INLINE T smaller(T a, T b) { return a < b ? a : b; }
template <typename T>
INLINE T larger(T a, T b) { return a > b ? a : b; }
// All threads of a block ask at once.
template <typename T>
INLINE T of_four(T value, int lane) {
  static T held[1024];
  const unsigned thread = running;
  held[thread] = value;
  meet();
  const T found = held[thread / 4 * 4 + lane];
  meet();
  return found;
}
template <typename T>
INLINE T __ldcg(const T *p) { return *p; }
INLINE void atomic_add(long *p, long v) { *p += v; }
INLINE long atomicAdd(unsigned long long *p, unsigned long long v) { return (*p += v) - v; }
INLINE long glance(const long *p) { return *p; }
INLINE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
INLINE void flag_raise(long *flag, long value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
INLINE void flag_wait(const long *flag, long value) {
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < value) sched_yield();
}

struct Gate {
  long bytes;
  bool expects;
  unsigned phase;
};
INLINE void change(Gate *gate, long bytes, bool expects) {
  gate->bytes += bytes;
  gate->expects |= expects;
  if (gate->expects && gate->bytes == 0) *gate = {0, false, gate->phase + 1};
}
INLINE void gate_open(Gate *gate) { *gate = {}; }
INLINE void gates_ready() { BARRIER(); }
INLINE void gate_expect(Gate *gate, unsigned bytes) { change(gate, bytes, true); }
INLINE void gate_wait(Gate *gate, unsigned parity) {
  while (gate->phase % 2 == parity) let_others_run();
}
INLINE void copy_row(void *to, const void *from, unsigned bytes, Gate *gate) {
  if ((bytes | (size_t)to | (size_t)from) % 16) {
    std::fprintf(stderr, "the copy engine wants multiples of 16 bytes\n");
    std::abort();
  }
  std::memcpy(to, from, bytes);
  change(gate, -(long)bytes, false);
}
