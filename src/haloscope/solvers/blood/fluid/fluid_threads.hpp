// A point of the lattice is a thread of a GPU: what fluid_lanes.hpp is for vectors.

#define UNROLLED _Pragma("unroll")
// What is rolled on cores is not here: rolled loops wait for each load, and keep their arrays in memory.
#define ROLLED UNROLLED
#define PAIR_BY_PAIR false
#define OPENINGS_BOUNDS __launch_bounds__(128, 4)

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

// A number as it is once it has been kept.
INLINE real as_kept(real a) { return number(kept(a)); }
