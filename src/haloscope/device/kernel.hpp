// The dialect in which every kernel is written once and compiled twice: by a C++ compiler with
// OpenMP for processor cores, by NVRTC for NVIDIA GPUs. It is pasted in front of each source, after the
// words of declarations.hpp.
//
//   INLINE type name(...)           a pointwise function: the physics, written once
//   FOR_EACH(i, n)                  flat loop: cores and vector lanes | grid-stride threads
//   FOR_EACH_FROM(i, n, backward)   the same; on GPUs the last blocks begin where `backward` is set
//   FOR_CELLS(x, y, z, nx, ny, nz)  box loop: cores over z and y, lanes over x | 3-D grid
//   BLOCKS(b, n)                    independent blocks: cores | thread blocks
//   THREADS(i, n)                   the threads of a block: lanes | threads
//   THREADS2(j, i, nj, ni)          the same, two-dimensional (no division of a flat index)
//   SHARED(type, name, count)       array that the threads of a block share
//   PRIVATE(type, name, count)      one value a thread that outlives a THREADS loop; MINE(name, i)
//   PARTS(k, n)                     n parts of a reduction, each for one core's turn or one thread;
//   CELLS_OF_PART(k, n, x, y, z, nx, ny, nz)   the cells of a box that part k of n goes through
//   BARRIER()                       between THREADS loops that read what others wrote
//   atomic_add(pointer, value)      addition that other threads may do at the same time
//   root_of_normal(a)               square_root(a) for a of at least 2^-970 (float: 2^-101) and finite
//   reciprocal_of_normal(a)         1 / a for a between 2^-500 and 2^520 (float: 2^-60 and 2^70)
//
// Loops over lanes promise that their turns are independent: gather, never scatter.
// Arithmetic is IEEE on both machines and products are contracted only where `fused` says so,
// so that the same source gives the same bits on a processor, in a vector loop's remainder and
// on a GPU. `fused(a, b, c)` is a * b + c with one rounding.

#if defined(__CUDACC__)
#define ON_GPU 1
#define KERNEL_BOUNDS(bounds, name, ...) extern "C" __global__ void bounds name(__VA_ARGS__)
#define INLINE __device__ __forceinline__
#define FOR_EACH(i, n)                                                             \
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < (long)(n);        \
       i += (long)gridDim.x * blockDim.x)
#define FOR_EACH_FROM(i, n, backward)                                              \
  for (long i = ((backward) ? gridDim.x - 1 - blockIdx.x : blockIdx.x) *           \
                    (long)blockDim.x +                                             \
                threadIdx.x;                                                       \
       i < (long)(n); i += (long)gridDim.x * blockDim.x)
#define FOR_CELLS(x, y, z, nx, ny, nz)                                             \
  for (long z = blockIdx.z * (long)blockDim.z + threadIdx.z; z < (long)(nz);       \
       z += (long)gridDim.z * blockDim.z)                                          \
    for (long y = blockIdx.y * (long)blockDim.y + threadIdx.y; y < (long)(ny);     \
         y += (long)gridDim.y * blockDim.y)                                        \
      for (long x = blockIdx.x * (long)blockDim.x + threadIdx.x; x < (long)(nx);   \
           x += (long)gridDim.x * blockDim.x)
#define BLOCKS(b, n) for (long b = blockIdx.x; b < (long)(n); b += gridDim.x)
#define THREADS(i, n) for (int i = threadIdx.x; i < (int)(n); i += blockDim.x)
#define THREADS2(j, i, nj, ni)                                \
  for (int j = threadIdx.y; j < (int)(nj); j += blockDim.y)   \
    for (int i = threadIdx.x; i < (int)(ni); i += blockDim.x)
#define PARTS(k, n) for (long k = blockIdx.x * (long)blockDim.x + threadIdx.x; k < (long)(n); \
                         k += (long)gridDim.x * blockDim.x)
#define CELLS_OF_PART(k, n, x, y, z, nx, ny, nz)                                   \
  for (long row = k / 32, y = row % (ny), z = row / (ny); row < (long)(ny) * (nz); \
       row += (n) / 32, y = row % (ny), z = row / (ny))                            \
    for (long x = k % 32; x < (long)(nx); x += 32)
#define SHARED(type, name, count) __shared__ type name[count]
#define PRIVATE(type, name, count) type name
#define MINE(name, i) name
#define BARRIER() __syncthreads()
// Of GPUs alone: numbers that a warp loads side by side, but not from the beginning of a line of memory.
// The second-level cache then fetches all of both lines, of which other warps need the rest, at once.
#if __CUDA_ARCH__ >= 750
INLINE float load_with_line(const float *p) {
  float a;
  asm("ld.global.L2::128B.f32 %0, [%1];" : "=f"(a) : "l"(p) : "memory");
  return a;
}
INLINE double load_with_line(const double *p) {
  double a;
  asm("ld.global.L2::128B.f64 %0, [%1];" : "=d"(a) : "l"(p) : "memory");
  return a;
}
INLINE unsigned short load_with_line(const unsigned short *p) {
  unsigned short a;
  asm("ld.global.L2::128B.u16 %0, [%1];" : "=h"(a) : "l"(p) : "memory");
  return a;
}
#else
template <typename T>
INLINE T load_with_line(const T *p) { return *p; }
#endif
// Of kernels that are bound to begin early (sm_90 on). What was launched before is done, and seen, once
// wait_for_launches_before returns; before that a kernel may read only what no kernel writes, and write
// nothing. At least one thread of each launch waits: else it could end before the one before it. What others
// write is not read by pointers said to be the only ones (__restrict__): the compiler may take such loads
// across the wait. let_next_launch_begin: the next launch may have its blocks once all of this one call it.
INLINE void wait_for_launches_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Of GPUs alone: flags in the memory of this GPU or of another. What a block wrote before its
// barrier and the flag that it raises after is seen by whoever waits for that value.
INLINE void flag_raise(long *flag, long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
INLINE void flag_wait(const long *flag, long value) {
  long seen;
  do {
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(flag) : "memory");
  } while (seen < value);
}
// The value that another of four neighbouring threads holds; all threads of a warp ask at once.
template <typename T>
INLINE T of_four(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane, 4); }
// A look at a counter that other blocks of this GPU change.
INLINE long glance(const long *counter) {
  long seen;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(seen) : "l"(counter) : "memory");
  return seen;
}
// Of GPUs alone (sm_90 on): the copy engine brings rows to shared memory while threads go on. A
// gate counts the bytes that are still to come; its phases alternate between parity 0 and 1.
// Addresses and sizes are multiples of 16 bytes.
#define DYNAMIC_SHARED(type, name)                            \
  extern __shared__ __align__(128) unsigned char name##_raw[]; \
  type *const name = reinterpret_cast<type *>(name##_raw)
typedef unsigned long long Gate;
#if __CUDA_ARCH__ >= 900
INLINE unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
INLINE void gate_open(Gate *gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(gate)) : "memory");
}
INLINE void gates_ready() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
INLINE void gate_expect(Gate *gate, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(gate)),
               "r"(bytes)
               : "memory");
}
INLINE void copy_row(void *to, const void *from, unsigned bytes, Gate *gate) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(gate))
      : "memory");
}
INLINE void gate_wait(Gate *gate, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(gate)),
      "r"(parity)
      : "memory");
}
#endif
INLINE void atomic_add(float *p, float v) { atomicAdd(p, v); }
INLINE void atomic_add(double *p, double v) { atomicAdd(p, v); }
INLINE void atomic_add(long *p, long v) {
  atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
INLINE double fused(double a, double b, double c) { return fma(a, b, c); }
INLINE float fused(float a, float b, float c) { return fmaf(a, b, c); }
INLINE double square_root(double a) { return sqrt(a); }
INLINE float square_root(float a) { return sqrtf(a); }
// What sqrt does on a GPU where it need not look for numbers out of range: the looks cost more than
// the root, since nothing is moved across them.
INLINE double root_of_normal(double a) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
  const double e = fma(a, -(y * y), 1.0);
  y = fma(fma(e, 0.375, 0.5), y * e, y);
  const double half = __hiloint2double(__double2hiint(y) - 0x00100000, __double2loint(y));
  const double root = a * y;
  return fma(fma(root, -root, a), half, root);
}
INLINE float root_of_normal(float a) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  const float root = a * y, half = 0.5f * y;
  return fmaf(fmaf(-root, root, a), half, root);
}
// What a division of 1 does there, without looking either. The lower half of the first guess is what
// that division has there: it decides no more than the last bit of few numbers.
INLINE double reciprocal_of_normal(double a) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
  y = __hiloint2double(__double2hiint(y), __double2hiint(a) + 0x300402);
  const double e = fma(-a, y, 1.0);
  y = fma(y, fma(e, e, e), y);
  return fma(y, fma(-a, y, 1.0), y);
}
INLINE float reciprocal_of_normal(float a) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return fmaf(y, -fmaf(a, y, -1.0f), y);
}
INLINE double absolute(double a) { return fabs(a); }
INLINE float absolute(float a) { return fabsf(a); }

#else
#define ON_GPU 0
#define KERNEL_BOUNDS(bounds, name, ...) extern "C" void name(__VA_ARGS__)
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#define FOR_EACH(i, n) \
  PRAGMA(omp parallel for simd schedule(static)) for (long i = 0; i < (long)(n); ++i)
#define FOR_EACH_FROM(i, n, backward) FOR_EACH(i, n)
#define FOR_CELLS(x, y, z, nx, ny, nz)                                    \
  PRAGMA(omp parallel for collapse(2) schedule(static))                   \
  for (long z = 0; z < (long)(nz); ++z)                                   \
    for (long y = 0; y < (long)(ny); ++y)                                 \
      PRAGMA(omp simd) for (long x = 0; x < (long)(nx); ++x)
#define BLOCKS(b, n) PRAGMA(omp parallel for schedule(static)) for (long b = 0; b < (long)(n); ++b)
#define THREADS(i, n) PRAGMA(omp simd) for (int i = 0; i < (int)(n); ++i)
#define THREADS2(j, i, nj, ni)            \
  for (int j = 0; j < (int)(nj); ++j)     \
    PRAGMA(omp simd) for (int i = 0; i < (int)(ni); ++i)
#define PARTS(k, n) PRAGMA(omp parallel for schedule(static)) for (long k = 0; k < (long)(n); ++k)
#define CELLS_OF_PART(k, n, x, y, z, nx, ny, nz)                               \
  for (long row = k, y = row % (ny), z = row / (ny); row < (long)(ny) * (nz);  \
       row += (n), y = row % (ny), z = row / (ny))                             \
    for (long x = 0; x < (long)(nx); ++x)
#define SHARED(type, name, count) alignas(64) type name[count]
#define PRIVATE(type, name, count) alignas(64) type name[count]
#define MINE(name, i) name[i]
#define BARRIER() ((void)0)
template <typename T>
INLINE void atomic_add(T *p, T v) {
#pragma omp atomic
  *p += v;
}
INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double square_root(double a) { return __builtin_sqrt(a); }
INLINE float square_root(float a) { return __builtin_sqrtf(a); }
INLINE double root_of_normal(double a) { return __builtin_sqrt(a); }
INLINE float root_of_normal(float a) { return __builtin_sqrtf(a); }
INLINE double reciprocal_of_normal(double a) { return 1 / a; }
INLINE float reciprocal_of_normal(float a) { return 1 / a; }
INLINE double absolute(double a) { return __builtin_fabs(a); }
INLINE float absolute(float a) { return __builtin_fabsf(a); }
#endif

template <typename T>
INLINE T larger(T a, T b) { return a > b ? a : b; }
template <typename T>
INLINE T smaller(T a, T b) { return a < b ? a : b; }
