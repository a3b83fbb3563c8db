// A point of the lattice is a thread of a GPU: what fluid_lanes.hpp is for vectors.

#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")  // where unrolling would make compilers slow

INLINE real raised(real a, real power) { return pow(a, power); }

#if HALF
typedef unsigned short Stored;  // bits: the type itself needs a header of the toolkit
INLINE real number(Stored bits) {
  real a;
  asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(bits));
  return a * ((real)1 / SCALE);
}
INLINE Stored kept(real a) {
  Stored bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(rounded_for_half(a * SCALE)));
  return bits;
}
#else
typedef real Stored;
INLINE real number(Stored a) { return a; }
INLINE Stored kept(real a) { return a; }
#endif
