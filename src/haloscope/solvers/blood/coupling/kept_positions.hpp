// How far a vertex has moved at most since lists were made, from where it was then in single precision.
//
// Half of the memory, and half of what each step reads of it. Lists depend on no digit of it: what was
// rounded off counts as a move, so that they are made anew a little sooner, where positions are beyond
// 10^6 much sooner. A vertex without a place that has kept its number has not moved: it is in no list.

// Twice what a number in single precision is off by, over its size.
#define ROUNDED_OFF ((real)(1.0 / (1 << 23)))
#define FROM_AFAR ((real)1e9)

// More than any margin, or no number, for what is no number now or was none then.
INLINE real moved_at_most(real x, float then) {
  const real was = (real)then;
  if (!placeable(x)) return (float)x == then ? 0 : FROM_AFAR;
  return absolute(x - was) + absolute(was) * ROUNDED_OFF;
}
