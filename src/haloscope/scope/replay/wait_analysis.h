// Output of the wait-state replay, from which the root-cause replay starts.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>
#include "run.h"

// Values of a location and node; names in patterns.py, in this order.
enum Slot {
  TIME, VISITS, P2P_SYNCHRONISATION, LATE_SENDER, WRONG_ORDER_SAME, WRONG_ORDER_DIFFERENT,
  LATE_RECEIVER, WAIT_AT_BARRIER, BARRIER_COMPLETION, WAIT_AT_NXN, NXN_COMPLETION, LATE_BROADCAST,
  EARLY_REDUCE, EARLY_SCAN, SCAN_COMPLETION, INIT_COMPLETION, WAIT_AT_FINALIZE, WAIT_AT_FENCE,
  EARLY_FENCE, LATE_POST, EARLY_WAIT, LATE_COMPLETE, LOCK_CONTENTION, MESSAGES_SENT, EMPTY_SENT,
  MESSAGES_RECEIVED, EMPTY_RECEIVED, BYTES_SENT, BYTES_RECEIVED, COLLECTIVES, BYTES_COLLECTIVE,
  BYTES_RMA, LATE_SENDERS, LATE_RECEIVERS, IDLE_THREADS, DELAY_SHORT, DELAY_LONG, CRITICAL_PATH,
  IMBALANCE, SLOTS
};

// A wait state. Places are those of words of a location: `at` where the waiting call is entered,
// `cause_at` where the one waited for enters the call that ends the wait.
struct Wait {
  double begin, end;
  uint64_t at : 56, slot : 8;
  uint64_t cause_at : 56, together : 8;  // together: all members of a collective came to one point
  int32_t node, location;
  int32_t cause_node, cause;             // cause: a location, -1 where its events are missing
};
static_assert(sizeof(Wait) == 48, "a trace may have one for every few events");

// A collective operation that brings all its members to one point in time.
struct Synchronisation {
  int32_t comm;
  std::vector<int32_t> locations;  // of the members, by place; -1 where missing
  std::vector<int64_t> places;     // in the members' words, of its ENTER
  std::vector<double> enters;
  double met = 0;                  // when the last one had entered
};

// Time and visits of a location in a node.
struct NodeTime {
  int64_t ticks = 0;  // outside of the nodes below it
  int64_t visits = 0;
};

// Time by call path summed up from the begin of a location to places in it, so that the time of a
// stretch is a difference and not another walk through its events.
struct Mark {
  int64_t place, ticks;    // of the next event; ticks until there, as written
  int64_t first;           // of its sums
  int32_t count, current;  // how many there are; what is entered there
};

struct Marks {
  static constexpr int64_t kWords = 32;  // between two marks, at least
  std::vector<int32_t> active;           // nodes in the order in which they were first entered
  std::vector<Mark> list;
  std::vector<int64_t> sums;             // of active[0 ...] for each mark, ticks
  std::vector<uint32_t> before;          // [k]: marks at places up to k * kWords

  void add(int64_t place, int64_t ticks, int32_t current, const NodeTime *nodes) {
    while ((int64_t)before.size() * kWords < place) before.push_back((uint32_t)list.size());
    list.push_back({place, ticks, (int64_t)sums.size(), (int32_t)active.size(), current});
    for (int32_t node : active) sums.push_back(nodes[node].ticks);
  }
  // How many there are up to the ENTER at this place, one right behind it included.
  size_t until(int64_t place) const {
    const size_t k = (size_t)((place + 1) / kWords);
    size_t m = k < before.size() ? before[k] : list.size();
    while (m < list.size() && list[m].place <= place + 1) m++;
    return m;
  }
};

struct Pair {
  int32_t node, sender, receiver, unused;
  int64_t messages, empty, bytes;
  double seconds, receive_seconds;
};

// What a replay counts; names in patterns.py, in this order.
struct Counts {
  int64_t events = 0, broken = 0, unmatched_sends = 0, unmatched_receives = 0, incomplete_collectives = 0,
          scans = 0, scans_synchronising = 0, unknown = 0, skipped_sends = 0, skipped_receives = 0,
          skipped_collectives = 0;
  void add(const Counts &other) {
    int64_t sums[11], more[11];
    static_assert(sizeof sums == sizeof(Counts), "one number after another");
    std::memcpy(sums, this, sizeof sums);
    std::memcpy(more, &other, sizeof more);
    for (int i = 0; i < 11; i++) sums[i] += more[i];
    std::memcpy((void *)this, sums, sizeof sums);
  }
};

struct WaitAnalysis {
  int64_t locations = 0, nodes = 0;
  std::unique_ptr<double[], decltype(&std::free)> values{nullptr, std::free};  // [location][node][slot]
  std::vector<double> begins, ends;  // of each location, seconds on the run's clock
  std::vector<int64_t> open;         // calls of each location that are not left at its end
  std::vector<double> finalised;     // when it entered MPI_Finalize, if it did
  std::vector<Pair> pairs;
  std::vector<int64_t> sizes;  // [node][66]
  std::unique_ptr<Wait[], decltype(&std::free)> waits{nullptr, std::free};  // by location and end
  std::vector<int64_t> wait_starts;  // of each location in `waits`, and how many there are
  std::vector<int32_t> charged;  // of each wait, once known: the call path that is charged most, or -1
  std::vector<Synchronisation> synchronisations;
  std::vector<Marks> marks;  // by location
  Counts counts;

  // Zeros, which take no memory before something is written.
  void make_values() {
    values.reset((double *)std::calloc((size_t)std::max<int64_t>(1, locations * nodes), SLOTS * sizeof(double)));
    if (!values) throw std::bad_alloc();
  }
  // Not filled yet.
  void make_waits() {
    waits.reset((Wait *)std::malloc(std::max<int64_t>(1, wait_count()) * sizeof(Wait)));
    if (!waits) throw std::bad_alloc();
  }
  int64_t wait_count() const { return wait_starts.empty() ? 0 : wait_starts.back(); }
  double *at(int64_t location, int64_t node) { return values.get() + (location * nodes + node) * SLOTS; }
};

// ---- sorts by time: a radix sort on times as 24 bits of their span, then exactly where these agree ----

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
