// What the wait-state replay finds and the root-cause replay starts from.
#pragma once
#include <algorithm>
#include <cstdlib>
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

// A place in a location's words where decoding can begin: `ticks` are those before the event.
struct Position {
  int64_t place = 0;
  int64_t ticks = 0;
};

// A wait state. `at` is where the waiting call is entered, `cause_at` where the one waited for
// enters the call that ends the wait.
struct Wait {
  int32_t slot;
  int32_t node, location;
  int32_t cause_node, cause;  // cause: a location, -1 where its events are missing
  int32_t collective;         // number of the synchronisation that it belongs to, -1 for messages
  double begin, end;
  Position at, cause_at;
};

// A collective operation that brings all its members to one point in time.
struct Synchronisation {
  int32_t comm;
  std::vector<int32_t> locations;  // of the members, by place; -1 where missing
  std::vector<Position> positions;
  std::vector<double> enters;
};

// Time by call path summed up from the begin of a location to places in it, so that the time of a
// stretch is a difference and not another walk through its events.
struct Marks {
  static constexpr int64_t kWords = 64;  // between two marks, at least
  std::vector<int32_t> active;           // nodes in the order in which they were first entered
  std::vector<int64_t> places, ticks, starts;
  std::vector<int32_t> currents;         // what is entered there
  std::vector<int64_t> sums;             // of active[0 ...] from starts[k] on, ticks
  int64_t count(size_t k) const {
    return (k + 1 < starts.size() ? starts[k + 1] : (int64_t)sums.size()) - starts[k];
  }
};

struct Pair {
  int32_t node, sender, receiver, unused;
  int64_t messages, empty, bytes;
  double seconds, receive_seconds;
};

struct Found {
  int64_t locations = 0, nodes = 0;
  std::unique_ptr<double[], decltype(&std::free)> values{nullptr, std::free};  // [location][node][slot]
  std::vector<double> begins, ends;  // of each location, seconds on the run's clock
  std::vector<int64_t> open;         // calls of each location that are not left at its end
  std::vector<double> finalised;     // when it entered MPI_Finalize, if it did
  std::vector<Pair> pairs;
  std::vector<int64_t> sizes;  // [node][66]
  std::vector<Wait> waits;     // by location, in the order of their ends
  std::vector<int64_t> wait_starts;  // of each location in `waits`
  std::vector<Synchronisation> synchronisations;
  std::vector<Marks> marks;  // by location
  int64_t events = 0, broken = 0, unmatched_sends = 0, unmatched_receives = 0,
          incomplete_collectives = 0, scans = 0, scans_synchronising = 0, unknown = 0;

  // Zeros, which take no memory before something is written.
  void make_values() {
    values.reset((double *)std::calloc((size_t)std::max<int64_t>(1, locations * nodes), SLOTS * sizeof(double)));
    if (!values) throw std::bad_alloc();
  }
  double *at(int64_t location, int64_t node) { return values.get() + (location * nodes + node) * SLOTS; }
};
