// The controlled logical clock: counts where effects come before their causes, and shifts events
// so that none does.
//
// A rank's clock is corrected as a whole (its threads and streams share it) by a shift that
// depends on time. Four passes over the events, of which the first is all where nothing is wrong:
//   MEASURE  counts what is wrong. Where messages go to and fro in less than twice the latency, a
//            shift would make the next one necessary and so on: the latency is less then.
//   FORWARD  a receive is put not before its send and the least latency. The shift that this takes
//            shrinks from there on, by kDecay of the time that goes by: later intervals keep their
//            lengths, and the clock comes back to the measured one.
//   LIMITS   before a jump, events are to be shifted too, along a ramp of the slope kRamp; this
//            writes down the sends that may not be moved so far, as their receives stay.
//   COUNT    what is still wrong afterwards.
// Rabenseifner, "The controlled logical clock - a global time for trace-based software monitoring
// of parallel applications in workstation clusters", Euromicro PDP 1997; Becker, Rabenseifner,
// Wolf and Linford, Parallel Computing 35 (2009) 595, for collectives; Becker, Geimer,
// Rabenseifner and Wolf, Cluster Computing 16 (2013) 3.
//
// t: time as measured, c: corrected, both in seconds on the run's clock; shifts are in ticks.
#include <exception>
#include <memory>

#include "causal.h"

namespace {

// ---- ramps that lead up to jumps of a clock, as far as limits allow ----

// An event that may be shifted by `shift` ticks at most.
struct Limit {
  int64_t tick;
  double shift;
};

// Shift at a tick; `place` is the knot passed last, and ticks do not go back.
double value_at(const std::vector<Knot> &knots, size_t &place, int64_t tick) {
  if (knots.empty()) return 0;
  while (place + 1 < knots.size() && knots[place + 1].tick <= tick) place++;
  const Knot &a = knots[place];
  if (tick <= a.tick || place + 1 >= knots.size()) return (double)a.shift;
  const Knot &b = knots[place + 1];
  return a.shift + double(tick - a.tick) / double(b.tick - a.tick) * double(b.shift - a.shift);
}

// The ramp that leads up to one jump: vertices from its upper end to the left, then a line of the
// least slope down to nothing. Asked from right to left.
class Ramp {
 public:
  bool active = false;

  // The steepest parts come last: of all ramps that grow steeper and respect the limits from the
  // tick `begin` on, this is the highest, the lower convex hull of the limits and the jump's end.
  void lead_to(int64_t tick, int64_t shift, int64_t begin, const std::vector<Limit> &limits,
               double slope) {
    slope_ = slope;
    active = true;
    vertices_.clear();
    auto first = std::lower_bound(limits.begin(), limits.end(), begin,
                                  [](const Limit &limit, int64_t at) { return limit.tick < at; });
    auto add = [&](Limit point) {
      while (vertices_.size() >= 2 && !turns(vertices_[vertices_.size() - 2], vertices_.back(), point))
        vertices_.pop_back();
      vertices_.push_back(point);
    };
    for (; first != limits.end() && first->tick < tick; ++first)
      if (first->shift < double(shift)) add(*first);
    add({tick, (double)shift});
    std::reverse(vertices_.begin(), vertices_.end());
    size_t kept = 1;
    while (kept < vertices_.size() && steepness(vertices_[kept], vertices_[kept - 1]) > slope) kept++;
    vertices_.resize(kept);
    rewind();
  }
  void rewind() { at_ = 0; }
  // The next vertex to the left of a tick; none: INT64_MIN.
  int64_t next_vertex(int64_t before) {
    while (at_ < vertices_.size() && vertices_[at_].tick >= before) at_++;
    return at_ < vertices_.size() ? vertices_[at_].tick : INT64_MIN;
  }
  double value(int64_t tick) {
    while (at_ + 1 < vertices_.size() && vertices_[at_ + 1].tick >= tick) at_++;
    size_t i = std::min(at_, vertices_.size() - 1);
    if (i > 0 && vertices_[i].tick < tick) i--;
    const Limit &right = vertices_[i];
    const double slope = i + 1 < vertices_.size() ? steepness(vertices_[i + 1], right) : slope_;
    return right.shift - slope * double(right.tick - tick);
  }
  // Where it comes down to nothing.
  int64_t foot() const {
    return vertices_.back().tick - (int64_t)std::ceil(vertices_.back().shift / slope_);
  }

 private:
  static double steepness(const Limit &left, const Limit &right) {
    return (right.shift - left.shift) / double(right.tick - left.tick);
  }
  static bool turns(const Limit &a, const Limit &b, const Limit &c) {
    return steepness(a, b) < steepness(b, c);
  }
  std::vector<Limit> vertices_;
  size_t at_ = 0;
  double slope_ = 1;
};

// The ramp up to a jump, with the limits to the left as far as it is above the other jumps: the
// search goes twice as far back each time.
void lead_up(Ramp &ramp, const std::vector<Knot> &jumps, size_t jump,
                    const std::vector<Limit> &limits, double slope) {
  const Knot &top = jumps[jump];
  for (size_t far = 16;; far *= 2) {
    const size_t last = jump > far ? jump - far : 0;
    const bool whole = last == 0;
    const int64_t foot = top.tick - (int64_t)std::ceil(double(top.shift) / slope);
    ramp.lead_to(top.tick, top.shift, whole ? foot : jumps[last].tick, limits, slope);
    if (whole) return;
    for (size_t i = jump; i-- > last;)
      if (jumps[i].tick < top.tick && ramp.value(jumps[i].tick) < (double)jumps[i].shift) {
        ramp.rewind();
        return;
      }
  }
}

// Knots with a ramp before each jump (two knots of one tick). Limits are sorted, one a tick.
std::vector<Knot> with_ramps(const std::vector<Knot> &jumps, const std::vector<Limit> &limits,
                                    double slope) {
  std::vector<Knot> knots;  // from right to left
  if (jumps.empty()) return knots;
  Ramp ramp;
  auto put = [&](int64_t tick, double shift) {
    const int64_t whole = (int64_t)std::llround(shift);
    if (!knots.empty() && knots.back().tick == tick && knots.back().shift == whole) return;
    knots.push_back({tick, whole});
  };
  put(jumps.back().tick, (double)jumps.back().shift);
  for (size_t i = jumps.size() - 1; i-- > 0;) {
    const Knot &left = jumps[i], &right = jumps[i + 1];
    if (left.tick == right.tick) {
      if (!ramp.active || ramp.value(right.tick) <= (double)right.shift)
        lead_up(ramp, jumps, i + 1, limits, slope);
      continue;
    }
    const double fall = double(right.shift - left.shift) / double(right.tick - left.tick);
    auto flat = [&](int64_t tick) { return left.shift + fall * double(tick - left.tick); };
    int64_t before = right.tick;
    while (ramp.active && before > left.tick) {
      const double above = ramp.value(before) - flat(before);
      const int64_t tick = std::max(ramp.next_vertex(before), left.tick);
      const double ramped = ramp.value(tick);
      if (ramped < flat(tick)) {  // they cross; from here to the left the jumps' own is higher
        const double part = above / (above + flat(tick) - ramped);
        const int64_t cross = before - (int64_t)std::ceil(part * double(before - tick));
        // Two knots: one in their middle could lift steep ramps above a limit.
        const double share = double(cross + 1 - tick) / double(before - tick);
        if (cross + 1 < before) put(cross + 1, ramped + share * (above + flat(before) - ramped));
        if (cross > left.tick && cross < before) put(cross, std::ceil(flat(cross)));
        ramp.active = false;
      } else {
        put(tick, ramped);
      }
      before = tick;
    }
    if (!ramp.active) put(left.tick, (double)left.shift);
  }
  if (ramp.active) {
    for (int64_t before = jumps.front().tick;;) {
      const int64_t tick = ramp.next_vertex(before);
      if (tick == INT64_MIN || ramp.value(tick) <= 0) break;
      put(tick, ramp.value(tick));
      before = tick;
    }
    put(ramp.foot(), 0);
  }
  std::reverse(knots.begin(), knots.end());
  return knots;
}

// ---- the clock ----

using causal::Flow;
using causal::Step;

constexpr double kDecay = 0.01;     // of the time that goes by after a jump
constexpr double kRamp = 0.02;      // of the time that goes by before it
constexpr double kMargin = 2;        // ticks that rounding may cost, at each end of a message
constexpr double kTolerance = 0.1;   // ticks, for what is counted

enum class Pass { MEASURE, FORWARD, LIMITS, COUNT };

struct Moment {
  double t = 0, c = 0;
  int64_t tick = 0, shift = 0;
  double need = 0;  // LIMITS: ticks by which the ramps would move it further
};

struct Nothing {};

struct Entry {
  struct Summary {
    int32_t last = -1, latest = -1;  // places that enter last, as measured and as corrected
    bool made = false;
  };
  Moment begin;
  double end = INFINITY;
  uint64_t sent = 0, received = 0;
};

// Clock corrections of a rank, by pass.
struct RankClock {
  double rate = 0;
  std::vector<Knot> forward, final;
  std::vector<Limit> limits;
  std::vector<Knot> wanted;  // forward and the ramps, before limits
};

struct Ways {
  double last[2] = {INFINITY, INFINITY};  // seconds of the last message each way
};

struct Rank : causal::Unit {
  std::vector<Moment> entered;  // by part of the stream: the last enter of an MPI call
  double shift = 0;             // FORWARD: at `since`
  int64_t since = 0;
  size_t wanted = 0;            // LIMITS: knot that was passed last
  int32_t message = -1;         // that it is blocked on
  int64_t instance = -1;        // that it is blocked on
  double time() { return stream.empty() ? 0 : stream.now().seconds(); }
};

class Clock : causal::Matcher<Clock, Rank, Moment, Nothing, Entry> {
  friend causal::Replay<Clock, Rank>;

 public:
  Clock(const RunInput &run, const int32_t *hosts, double latency, Pass pass,
        std::vector<RankClock> &clocks)
      : Matcher(run), hosts_(hosts), latency_(latency), pass_(pass), clocks_(clocks) {
    rates_.assign(run.rank_count, 0);
    locations_.assign(run.locations, run.locations + run.location_count);
    Rank *unit = nullptr;
    for (LocationInput &location : locations_) {
      if (location.is_stream || location.count == 0) continue;
      const std::vector<Knot> &knots =
          pass == Pass::COUNT ? clocks[location.rank].final : clocks[location.rank].forward;
      if (pass >= Pass::LIMITS) location.knots = knots.data(), location.knot_count = knots.size();
      rates_[location.rank] = clocks[location.rank].rate = location.rate;
      if (!unit || unit->rank != location.rank) unit = &replay_.add(location.rank);
      unit->stream.add(location, &location - locations_.data());
    }
    for (Rank &one : replay_.units) one.entered.resize(one.stream.parts());
    collectives_.open(run, replay_.units_of_rank);
  }

  void run() {
    replay_.run(*this);
    if (pass_ == Pass::LIMITS) collectives_.for_each([&](int32_t comm, auto &one) { bound(comm, one); });
  }
  int64_t violations = 0;
  double shortest = INFINITY;  // MEASURE: of messages to and fro between two hosts, the mean
  int64_t forced() const { return replay_.forced; }

  Step handle(Rank &u) {
    Decoder &d = u.stream.now();
    switch (d.kind) {
      case HS_EVENT_ENTER: {
        const int32_t node = d.node(d.payload);
        const int32_t role = node >= 0 ? run_.node_roles[node] : ROLE_NONE;
        if (role >= ROLE_MPI && role <= ROLE_RMA_SYNC) u.entered[u.stream.part()] = moment(u, d);
        return Step::GO_ON;
      }
      case HS_EVENT_SEND:
      case HS_EVENT_ISEND:
        if (d.payload < (uint32_t)run_.rank_count)
          messages_.done(send(u, d, moment(u, d)), causal::SENDER_DONE);
        return Step::GO_ON;
      case HS_EVENT_IRECV: {
        const causal::Promise promise = u.foresight.at_post(u.stream);
        if (promise.known && promise.sender < (uint32_t)run_.rank_count)
          request(u, d.payload).message = post(u, d, promise.sender, promise.channel, Nothing());
        return Step::GO_ON;
      }
      case HS_EVENT_RECV:
      case HS_EVENT_IRECV_DONE: return receive(u, d);
      case HS_EVENT_CANCELLED: forget(u, d.payload); return Step::GO_ON;
      case HS_EVENT_SKIPPED: skip(u, d); return Step::GO_ON;
      case HS_EVENT_COLLECTIVE: {
        const int32_t comm = d.comm(d.payload), place = d.place_in(d.payload);
        if (u.instance < 0)
          u.instance = enter(comm, place, d, {u.entered[u.stream.part()], INFINITY, d.words[1], d.words[2]});
        return leave(u, comm, place);
      }
      case HS_EVENT_ICOLLECTIVE: {
        const int32_t comm = d.comm(d.payload), place = d.place_in(d.payload);
        const int64_t instance = enter(comm, place, d, {moment(u, d), INFINITY, d.words[1], d.words[2]});
        if (instance >= 0) request(u, d.words[3]) = {-1, comm, place, instance};
        return Step::GO_ON;
      }
      case HS_EVENT_ICOLLECTIVE_DONE: {
        const causal::Request *pending = request_of(u, d.payload);
        if (!pending || pending->instance < 0) return Step::GO_ON;
        const causal::Request one = *pending;
        u.instance = one.instance;
        const Step step = leave(u, one.comm, one.place);
        if (step == Step::GO_ON) forget(u, d.payload);
        return step;
      }
      default: return Step::GO_ON;
    }
  }
  void end(Rank &u) {
    if (pass_ == Pass::FORWARD) shift_at(u, INT64_MAX);
  }

 private:
  Moment moment(Rank &u, Decoder &d) {
    Moment m;
    m.tick = d.in->epoch + d.ticks;
    m.t = m.c = d.seconds();
    if (pass_ == Pass::FORWARD) {
      if (u.shift > 0) m.c += shift_at(u, m.tick) * d.in->rate;
    } else if (pass_ == Pass::LIMITS && d.in->knot_count > 0) {
      m.shift = d.now - m.tick;
      m.need = value_at(clocks_[u.rank].wanted, u.wanted, m.tick) - (double)m.shift;
    }
    return m;
  }
  // FORWARD: the shift now; what has shrunk to nothing becomes a knot.
  double shift_at(Rank &u, int64_t tick) {
    if (u.shift <= 0) return 0;
    const int64_t gone = u.since + (int64_t)std::ceil(u.shift / kDecay);
    if (tick < gone) return u.shift - kDecay * double(tick - u.since);
    clocks_[u.rank].forward.push_back({gone, 0});
    u.shift = 0;
    return 0;
  }
  // An event that may not come before a moment elsewhere and the latency.
  void follows(Rank &u, Decoder &d, double t, double c, double latency, int32_t other) {
    const double rates = d.in->rate + rates_[other];
    const Moment own = moment(u, d);
    const double late = t + latency - own.t;
    violations += late > kTolerance * rates;
    if (pass_ != Pass::FORWARD) return;
    const bool moved = c != t || own.c != own.t;
    double missing = c + latency - own.c;
    if (moved) missing += kMargin * rates;
    if (missing <= (moved ? 0 : kTolerance * rates)) return;
    if (!moved) missing += kMargin * rates;
    std::vector<Knot> &knots = clocks_[u.rank].forward;
    const double before = shift_at(u, own.tick);
    u.shift = std::ceil(before + missing / d.in->rate);
    u.since = own.tick;
    if (knots.empty() || knots.back().tick < own.tick)
      knots.push_back({own.tick, (int64_t)std::floor(before)});
    else if (knots.size() >= 2 && knots[knots.size() - 2].tick == own.tick)
      knots.pop_back();  // raised twice at one tick
    knots.push_back({own.tick, (int64_t)u.shift});
  }
  // LIMITS: an event that must stay before the corrected time `end`.
  void precedes(int32_t rank, const Moment &m, double end, double margin) {
    if (m.need <= 0) return;
    const double rate = rates_[rank], slack = (end - m.c - margin) / rate;
    if (slack >= m.need) return;
    clocks_[rank].limits.push_back({m.tick, (double)m.shift + std::max(0.0, std::floor(slack))});
  }

  Step receive(Rank &u, Decoder &d) {
    const uint32_t sender = d.payload;
    if (sender >= (uint32_t)run_.rank_count) return Step::GO_ON;
    if (u.message < 0 && d.kind == HS_EVENT_IRECV_DONE) {
      if (const causal::Request *pending = request_of(u, d.words[2])) u.message = pending->message;
      forget(u, d.words[2]);
    }
    if (u.message < 0) u.message = post(u, d, sender, d.words[0], Nothing());
    auto &m = messages_[u.message];
    if (waits_for_send(u, m, sender)) return Step::BLOCKED;
    if (m.state & causal::SENT && !m.unseen) {
      const double latency = latency_of((int32_t)sender, u.rank);
      if (pass_ == Pass::MEASURE && latency > 0) compare((int32_t)sender, u.rank, d.seconds() - m.send.t);
      follows(u, d, m.send.t, m.send.c, latency, (int32_t)sender);
      if (pass_ == Pass::LIMITS)
        precedes((int32_t)sender, m.send, d.seconds() - latency, kMargin * (d.in->rate + rates_[sender]));
    }
    messages_.done(u.message, causal::RECEIVER_DONE);
    u.message = -1;
    return Step::GO_ON;
  }
  // What two clocks are apart is in both ways' times, once to either side.
  void compare(int32_t sender, int32_t receiver, double seconds) {
    const bool down = sender > receiver;
    Ways &ways = ways_.get({(uint64_t)std::min(sender, receiver), (uint64_t)std::max(sender, receiver)});
    ways.last[down] = seconds;
    const double margin = 2 * kMargin * (rates_[sender] + rates_[receiver]);
    shortest = std::min(shortest, (ways.last[0] + ways.last[1]) / 2 - margin);
  }
  double latency_of(int32_t a, int32_t b) const {
    return hosts_[a] >= 0 && hosts_[a] == hosts_[b] ? 0 : latency_;
  }

  static bool gets(const causal::Instance<Entry> &one, int32_t place) {
    return one.here[place] && (one.operation == HS_OP_BARRIER || one.entries[place].received > 0);
  }
  Step leave(Rank &u, int32_t comm, int32_t place) {
    if (u.instance < 0) return Step::GO_ON;
    auto &one = collectives_.at(comm, u.instance);
    if (waits_for_members(u, one, comm, place)) return Step::BLOCKED;
    Decoder &d = u.stream.now();
    const int32_t count = collectives_.size(comm);
    const bool looked = gets(one, place) && count > 1;
    int32_t from = -1, to = -1;  // places that come before this one
    switch (looked ? causal::flow_of(one.operation) : Flow::NONE) {
      case Flow::ALL_TO_ALL: from = 0, to = count; break;
      case Flow::ONE_TO_ALL:
        if (one.root_place >= 0 && one.root_place != place) from = one.root_place, to = from + 1;
        break;
      case Flow::ALL_TO_ONE:
        if (one.root_place == place) from = 0, to = count;
        break;
      case Flow::UPWARDS: from = 0, to = place; break;
      default: break;
    }
    if (from >= 0) {
      const bool whole = from == 0 && to == count;
      Entry::Summary &all = one.summary;
      if (!whole || !all.made) {
        all = Entry::Summary();
        for (int32_t i = from; i < to; i++) {
          if (!gives(one, i)) continue;
          const Moment &begin = one.entries[i].begin;
          if (all.last < 0 || begin.t > one.entries[all.last].begin.t) all.last = i;
          if (all.latest < 0 || begin.c > one.entries[all.latest].begin.c) all.latest = i;
        }
        all.made = whole && one.missing == 0;
      }
      if (all.last >= 0)
        follows(u, d, one.entries[all.last].begin.t, one.entries[all.latest].begin.c, 0,
                collectives_.rank(comm, all.latest));
    }
    one.entries[place].end = d.seconds();
    if (pass_ == Pass::LIMITS && one.missing == 0 && one.taken + 1 == one.arrived) bound(comm, one);
    collectives_.leave(comm, u.instance);
    u.instance = -1;
    return Step::GO_ON;
  }
  // LIMITS: how far the members' enters may be moved, when all have left.
  void bound(int32_t comm, causal::Instance<Entry> &one) {
    const int32_t count = collectives_.size(comm);
    const Flow flow = causal::flow_of(one.operation);
    double end = INFINITY;
    if (count < 2 || flow == Flow::NONE || flow == Flow::LOOSE) return;
    auto end_of = [&](int32_t i) { return gets(one, i) ? one.entries[i].end : INFINITY; };
    for (int32_t i = 0; i < count && flow != Flow::UPWARDS; i++)
      if (flow == Flow::ALL_TO_ALL || (i == one.root_place) == (flow == Flow::ALL_TO_ONE))
        end = std::min(end, end_of(i));
    for (int32_t i = count - 1; i >= 0; i--) {
      if (gives(one, i) && (flow != Flow::ONE_TO_ALL || i == one.root_place)) {
        const int32_t rank = collectives_.rank(comm, i);
        precedes(rank, one.entries[i].begin, end, kMargin * 2 * rates_[rank]);
      }
      if (flow == Flow::UPWARDS) end = std::min(end, end_of(i));
    }
  }

  const int32_t *hosts_;
  const double latency_;
  const Pass pass_;
  std::vector<RankClock> &clocks_;
  std::vector<LocationInput> locations_;
  std::vector<double> rates_;  // by rank: seconds a tick
  Table<Ways> ways_;
};

}  // namespace

// `counts`: violations before and after, 1 where the trace contradicts itself. `hosts` numbers
// each rank's host, -1 where it is not known. Null where memory is short.
extern "C" void *clock_correct(const RunInput *run, const int32_t *hosts, double latency,
                               int64_t *counts, double *largest) {
  try {
    auto clocks = std::make_unique<std::vector<RankClock>>(run->rank_count);
    double shortest = INFINITY;
    auto pass = [&](Pass which) {
      Clock clock(*run, hosts, latency, which, *clocks);
      clock.run();
      counts[2] |= clock.forced() > 0;
      shortest = std::min(shortest, clock.shortest);
      return clock.violations;
    };
    counts[1] = counts[2] = 0;
    *largest = 0;
    counts[0] = pass(Pass::MEASURE);
    if (counts[0] == 0) return clocks.release();
    latency = std::max(0.0, std::min(latency, shortest));
    counts[0] = pass(Pass::FORWARD);
    for (RankClock &rank : *clocks) rank.wanted = with_ramps(rank.forward, {}, kRamp);
    pass(Pass::LIMITS);
    for (RankClock &rank : *clocks) {
      std::vector<Limit> &limits = rank.limits;
      std::sort(limits.begin(), limits.end(), [](const Limit &a, const Limit &b) {
        return a.tick != b.tick ? a.tick < b.tick : a.shift < b.shift;
      });
      auto same = [](const Limit &a, const Limit &b) { return a.tick == b.tick; };
      limits.erase(std::unique(limits.begin(), limits.end(), same), limits.end());
      rank.final = with_ramps(rank.forward, limits, kRamp);
      for (const Knot &knot : rank.final) *largest = std::max(*largest, double(knot.shift) * rank.rate);
    }
    counts[1] = pass(Pass::COUNT);
    return clocks.release();
  } catch (const std::exception &) {
    return nullptr;
  }
}

// Knots of a rank; into `knots` where that is not null.
extern "C" int64_t clock_knots(const void *result, int32_t rank, Knot *knots) {
  const std::vector<Knot> &rank_knots = (*(const std::vector<RankClock> *)result)[rank].final;
  if (knots) std::copy(rank_knots.begin(), rank_knots.end(), knots);
  return (int64_t)rank_knots.size();
}

extern "C" void clock_free(void *result) { delete (std::vector<RankClock> *)result; }
