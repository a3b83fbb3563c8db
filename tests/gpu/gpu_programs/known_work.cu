// Does known work on a GPU, scene by scene: the tests look for just that in its trace.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAS_NVTX 1
#else
#define HAS_NVTX 0
#define nvtxRangePushA(name)
#define nvtxRangePop()
#endif

#define CHECK(call)                                                        \
  do {                                                                     \
    cudaError_t result = call;                                             \
    if (result != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result)); \
      std::exit(3);                                                        \
    }                                                                      \
  } while (0)

constexpr unsigned long long MILLISECOND = 1000000;
constexpr int TURNS = 20, LAUNCHES = 7, COUNT = 1 << 18;

__device__ unsigned long long now() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long begin = now();
  while (now() - begin < nanoseconds) continue;
}

extern "C" __global__ void first(float *x) { x[threadIdx.x] += 1; }
extern "C" __global__ void second(float *x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void third(float *y) { y[threadIdx.x] -= 1; }
// A name that is mangled.
__global__ void mangled(float *x, int n) { x[threadIdx.x] += static_cast<float>(n); }

int main() {
  float *x, *y, *host;
  cudaStream_t a, b;
  cudaEvent_t fork, join, mark;
  CHECK(cudaMalloc(&x, COUNT * sizeof *x));
  CHECK(cudaMalloc(&y, COUNT * sizeof *y));
  CHECK(cudaMallocHost(&host, COUNT * sizeof *host));
  for (int i = 0; i < COUNT; i++) host[i] = static_cast<float>(i);
  for (cudaStream_t *stream : {&a, &b})
    CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  for (cudaEvent_t *event : {&fork, &join, &mark})
    CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));

  nvtxRangePushA("copies");
  CHECK(cudaMemcpyAsync(x, host, 1000000, cudaMemcpyHostToDevice, a));
  CHECK(cudaMemcpyAsync(y, x, 500000, cudaMemcpyDeviceToDevice, a));
  CHECK(cudaMemcpyAsync(host, y, 300000, cudaMemcpyDeviceToHost, a));
  CHECK(cudaMemsetAsync(y, 0, 200000, a));
  CHECK(cudaStreamSynchronize(a));
  CHECK(cudaMemcpy(host, x, 4096, cudaMemcpyDeviceToHost));
  nvtxRangePop();

  nvtxRangePushA("in step");
  for (int turn = 0; turn < TURNS; turn++) {
    spin<<<1, 1, 0, a>>>(2 * MILLISECOND);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(a));
  }
  mangled<<<1, 32, 0, a>>>(x, 3);
  CHECK(cudaDeviceSynchronize());
  nvtxRangePop();

  nvtxRangePushA("graph");
  cudaGraph_t graph;
  cudaGraphExec_t instance;
  CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  first<<<1, 32, 0, a>>>(x);
  CHECK(cudaEventRecord(fork, a));
  CHECK(cudaStreamWaitEvent(b, fork, 0));
  third<<<1, 32, 0, b>>>(y);
  CHECK(cudaEventRecord(join, b));
  second<<<1, 32, 0, a>>>(x);
  second<<<1, 32, 0, a>>>(x);
  CHECK(cudaStreamWaitEvent(a, join, 0));
  CHECK(cudaMemcpyAsync(host, x, 64, cudaMemcpyDeviceToHost, a));
  CHECK(cudaStreamEndCapture(a, &graph));
  CHECK(cudaGraphInstantiate(&instance, graph, 0));
  for (int launch = 0; launch < LAUNCHES; launch++) CHECK(cudaGraphLaunch(instance, a));
  CHECK(cudaStreamSynchronize(a));
  nvtxRangePop();

  nvtxRangePushA("two streams");
  spin<<<1, 1, 0, a>>>(10 * MILLISECOND);
  CHECK(cudaEventRecord(mark, a));
  CHECK(cudaStreamWaitEvent(b, mark, 0));
  third<<<1, 32, 0, b>>>(y);
  CHECK(cudaEventSynchronize(mark));
  CHECK(cudaStreamSynchronize(b));
  nvtxRangePop();
  std::printf("nvtx %d\n", HAS_NVTX);
  return 0;
}
