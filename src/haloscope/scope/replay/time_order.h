// Sorts by time: a radix sort on times as 24 bits of their span, then exactly where these agree.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

// Doubles as integers in the same order, whatever their bits.
inline uint64_t ordered_bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits >> 63 ? ~bits : bits | uint64_t(1) << 63;
}

// Numbers 0 ... count - 1 by time(number); equal times stay in the order of their numbers.
template <class Time>
std::vector<int32_t> in_time_order(int64_t count, Time time) {
  constexpr int kBits = 12, kBins = 1 << kBits, kPasses = 2;
  double first = 1e300, last = -1e300;
  for (int64_t i = 0; i < count; i++) {
    first = std::min(first, time(i));
    last = std::max(last, time(i));
  }
  const double most = (1 << kBits * kPasses) - 1, scale = last > first ? most / (last - first) : 0;
  std::vector<uint64_t> keys(count), other(count);  // key << 32 | number
  std::vector<int64_t> bins(kPasses * kBins, 0);
  for (int64_t i = 0; i < count; i++) {
    const double part = (time(i) - first) * scale;
    const uint32_t key = part > 0 ? (uint32_t)std::min(part, most) : 0;
    keys[i] = (uint64_t)key << 32 | (uint32_t)i;
    for (int pass = 0; pass < kPasses; pass++) bins[pass * kBins + (key >> (pass * kBits) & (kBins - 1))]++;
  }
  for (int pass = 0; pass < kPasses; pass++) {
    int64_t *starts = bins.data() + pass * kBins, at = 0;
    for (int bin = 0; bin < kBins; bin++) {
      const int64_t size = starts[bin];
      starts[bin] = at;
      at += size;
    }
    for (uint64_t key : keys) other[starts[key >> (32 + pass * kBits) & (kBins - 1)]++] = key;
    keys.swap(other);
  }
  std::vector<uint64_t>().swap(other);
  std::vector<int32_t> order(count);
  for (int64_t i = 0; i < count; i++) order[i] = (int32_t)(uint32_t)keys[i];
  auto earlier = [&](int32_t a, int32_t b) {
    const uint64_t u = ordered_bits(time(a)), v = ordered_bits(time(b));
    return u != v ? u < v : a < b;
  };
  for (int64_t i = 0, past; i < count; i = past) {
    for (past = i + 1; past < count && keys[past] >> 32 == keys[i] >> 32;) past++;
    if (past - i > 1) std::sort(order.begin() + i, order.begin() + past, earlier);
  }
  return order;
}
