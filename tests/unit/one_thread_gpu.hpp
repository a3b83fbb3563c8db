// A GPU with one block of one thread: its kernels' own code, run by a processor core.
#include <cmath>
#define ON_GPU 1
#define KERNEL_BOUNDS(bounds, name, ...) extern "C" void name(__VA_ARGS__)
#define INLINE static inline
#define __global__
#define __launch_bounds__(...)
#define BLOCKS(b, n) for (long b = 0; b < (long)(n); b++)
#define THREADS(i, n) for (int i = 0; i < (int)(n); i++)
#define BARRIER() ((void)0)
INLINE void __threadfence() {}
#define DYNAMIC_SHARED(type, name) static type name[1 << 16]
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
