// A GPU from sm_90 on, one block after the other, the last one first, as no order is promised. The
// threads of a block are threads of the processor, so that barriers, the copy engine and the matrix
// units of the kernels' own code do what they do there.
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#define ON_GPU 1
#define __CUDA_ARCH__ 900
#define KERNEL_BOUNDS(bounds, name, ...) extern "C" void name(__VA_ARGS__)
#define INLINE static inline
#define __global__
#define __launch_bounds__(...)
#define BLOCKS(b, n) for (long b = blockIdx.x; b < (long)(n); b += gridDim.x)
#define THREADS(i, n) for (int i = threadIdx.x; i < (int)(n); i += blockDim.x)
#define BARRIER() everybody->arrive_and_wait()
#define DYNAMIC_SHARED(type, name) type *const name = reinterpret_cast<type *>(memory)

struct Index {
  unsigned x;
};
static thread_local Index threadIdx, blockIdx;
static Index gridDim, blockDim;
static std::unique_ptr<std::barrier<>> everybody;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
static double exchanged[32][2][32];
alignas(128) static unsigned char memory[1 << 20];

INLINE double fused(double a, double b, double c) { return std::fma(a, b, c); }
INLINE float fused(float a, float b, float c) { return std::fmaf(a, b, c); }
INLINE double square_root(double a) { return std::sqrt(a); }
INLINE float square_root(float a) { return std::sqrt(a); }
INLINE double root_of_normal(double a) { return std::sqrt(a); }
INLINE float root_of_normal(float a) { return std::sqrt(a); }
INLINE double reciprocal_of_normal(double a) { return 1 / a; }
INLINE float reciprocal_of_normal(float a) { return 1 / a; }
template <typename T>
INLINE T smaller(T a, T b) { return a < b ? a : b; }

typedef unsigned long long Gate;
struct GateState {
  long bytes;
  bool arrived;
  unsigned phase;
};
static GateState states[2];
static std::mutex lock;
INLINE GateState &state(Gate *gate) { return states[gate - reinterpret_cast<Gate *>(memory)]; }
INLINE void change(Gate *gate, long bytes, bool arrives) {
  std::lock_guard<std::mutex> alone(lock);
  GateState &of = state(gate);
  of.bytes += bytes;
  of.arrived |= arrives;
  if (of.arrived && of.bytes == 0) of = {0, false, of.phase + 1};
}
INLINE void gate_open(Gate *gate) { state(gate) = {}; }
INLINE void gates_ready() { BARRIER(); }
INLINE void gate_expect(Gate *gate, unsigned bytes) { change(gate, bytes, true); }
INLINE void gate_wait(Gate *gate, unsigned parity) {
  for (bool done = false; !done; std::this_thread::yield()) {
    std::lock_guard<std::mutex> alone(lock);
    done = state(gate).phase % 2 != parity;
  }
}
INLINE void copy_row(void *to, const void *from, unsigned bytes, Gate *gate) {
  if ((bytes | (size_t)to | (size_t)from) % 16) {
    std::fprintf(stderr, "the copy engine wants multiples of 16 bytes\n");
    std::abort();
  }
  std::memcpy(to, from, bytes);
  change(gate, -(long)bytes, false);
}
template <typename T>
INLINE void multiply_add(T c[2], T a, T b) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  exchanged[warp][0][lane] = a;
  exchanged[warp][1][lane] = b;
  warps[warp]->arrive_and_wait();
  for (int p = 0; p < 2; p++)
    for (int m = 0; m < 4; m++)
      c[p] = fused(T(exchanged[warp][0][lane / 4 * 4 + m]), T(exchanged[warp][1][(2 * (lane % 4) + p) * 4 + m]), c[p]);
  warps[warp]->arrive_and_wait();
}

// Runs a kernel; false if it wrote beyond its shared memory.
template <typename F>
static bool launch(int blocks, int threads, long shared, F kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (int b = blocks - 1; b >= 0; b--) {
    std::memset(memory, 0xff, sizeof memory);  // no numbers
    everybody = std::make_unique<std::barrier<>>(threads);
    warps.clear();
    for (int w = 0; w < threads / 32; w++) warps.push_back(std::make_unique<std::barrier<>>(32));
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++)
      running.emplace_back([=] {
        threadIdx.x = t;
        blockIdx.x = b;
        kernel();
      });
    for (std::thread &one : running) one.join();
    for (long n = shared; n < (long)sizeof memory; n++)
      if (memory[n] != 0xff) return false;
  }
  return true;
}
