// What goes before populations are kept in half precision: a choice of up or down that leaves no bias.
//
// Rounding to nearest is the same at every step of a steady flow and adds up against the small change
// that a force makes in a step. Here a number is rounded up as often as it is near to the upper one: to
// what half precision has no room for, 13 bits, a number of 13 bits is added that a hash makes of the
// number's own bits (Knuth's multiplicative one), and the sum is cut off. So the same number is always
// rounded alike, on any rank and device, and numbers that half precision has stay as they are.
template <typename Bits>
INLINE Bits up_or_down(Bits bits) {
  return (bits + (bits * 2654435761u >> 19)) & ~0x1fffu;
}
INLINE float rounded_for_half(float a) {
  union {
    float number;
    unsigned bits;
  } v = {a};
  v.bits = up_or_down(v.bits);
  return absolute(a) < 65504.0f ? v.number : a;
}
