// A point of the lattice is a thread of a GPU: what fluid_lanes.hpp is for vectors.

#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")  // where unrolling would make compilers slow

INLINE real raised(real a, real power) { return pow(a, power); }
