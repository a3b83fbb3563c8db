// Goes through all ranks' events side by side and finds wait states and their causes.
//
// Ranks are shared out to threads. In turns every thread decodes a stretch of its ranks' events
// (writing down sends, receives and collectives), then matches what has arrived for its ranks,
// then goes through calls whose messages are all matched, in order, and computes their waits.
// Decoding never waits for another rank, so that threads meet three times a stretch and not once
// a message; what is written down is dropped as soon as it has been used, so that a trace of any
// length fits into memory. All sums of a location are made by one thread in the order of its
// events: the result does not depend on the number of threads.
//
// Definitions: Geimer et al., Concurrency and Computation 22 (2010) 702, and the pattern
// descriptions of the Scalasca family; point-to-point synchronisation and Early Scan: Wylie et
// al., EuroPVM/MPI 2007. B is the enter, E the leave of a call.
#include <algorithm>
#include <functional>
#include <vector>

#include "wait_analysis.h"
#include "sharing.h"
#include "team.h"

// Wait states as results list them.
struct __attribute__((packed)) ListedWait {  // WAITS of result.py
  int32_t metric, node, location, cause, cause_node, delay_node;
  double begin, end;
};

// The longest waits, at most `most` (at least one), in the order of their begins. Of equally long
// ones the first: which others were left out before makes no difference. `delay_node` is the number
// of the wait until name_delays() is called.
inline void list_waits(const WaitAnalysis &analysis, int64_t most, const int32_t *metrics, ListedWait *out) {
  const Wait *waits = analysis.waits.get();
  const int64_t count = analysis.wait_count();
  auto length = [&](int64_t i) { return waits[i].end - waits[i].begin; };
  std::vector<int32_t> chosen;
  if (count > most) {
    std::vector<double> lengths(count);
    for (int64_t i = 0; i < count; i++) lengths[i] = length(i);
    std::nth_element(lengths.begin(), lengths.begin() + (most - 1), lengths.end(), std::greater<double>());
    const double least = lengths[most - 1];
    int64_t equal = most;
    for (int64_t i = 0; i < most - 1; i++) equal -= lengths[i] > least;
    chosen.reserve(most);
    for (int64_t i = 0; i < count; i++)
      if (length(i) > least || (length(i) == least && equal-- > 0)) chosen.push_back((int32_t)i);
  }
  const int64_t kept = count > most ? (int64_t)chosen.size() : count;
  auto number = [&](int64_t k) -> int64_t { return count > most ? chosen[k] : k; };
  const std::vector<int32_t> order = in_time_order(kept, [&](int64_t k) { return waits[number(k)].begin; });
  for (int64_t n = 0; n < kept; n++) {
    const int64_t at = number(order[n]);
    const Wait &w = waits[at];
    out[n] = {metrics[w.slot], w.node, w.location, w.cause, w.cause_node, (int32_t)at, w.begin, w.end};
  }
}

// Puts the call path that is charged most for each into the place of the wait's number.
inline void name_delays(const WaitAnalysis &analysis, int64_t count, ListedWait *listed) {
  for (int64_t n = 0; n < count; n++)
    listed[n].delay_node = analysis.charged.empty() ? -1 : analysis.charged[listed[n].delay_node];
}

namespace {

struct Replay : Sharing {
  void go(void (*progress)(double)) {
    const int64_t L = run->location_count, N = run->node_count;
    threads = std::max(1, std::min<int>(run->threads, std::max(1, run->rank_count / peers.count)));
    analysis->locations = L;
    analysis->nodes = N;
    analysis->make_values();
    analysis->begins.assign(L, 0);
    analysis->marks.resize(L);
    analysis->open.assign(L, 0);
    analysis->finalised.assign(L, -1e300);
    analysis->ends.assign(L, 0);
    locations.resize(L);
    ranks = std::vector<RankState>(run->rank_count);
    owner.resize(run->rank_count);
    home.resize(run->rank_count);
    outboxes.assign(threads, std::vector<Outbox>(peers.count));
    comms = std::vector<Communicator>(run->comm_count);
    mail.assign(threads, std::vector<std::vector<SendNote>>(threads));
    arrivals.assign(threads, std::vector<std::vector<Arrival>>(threads));
    access_mail.assign(threads, std::vector<std::vector<Access>>(threads));
    sizes.assign(threads, std::vector<int64_t>(N * kSizes, 0));
    counts.assign(threads, {});
    int64_t words = 0, present = 0, seen = 0;
    double begin = 1e300;
    for (int64_t i = 0; i < L; i++) {
      const LocationInput &in = run->locations[i];
      locations[i].decoder.open(in);
      locations[i].values = analysis->at(i, 0);
      locations[i].ended = in.count == 0;
      if (keep_causes) locations[i].next_mark = Marks::kWords;
      if (in.is_stream || in.rank < 0 || in.rank >= run->rank_count) continue;
      if (in.count > 0) {
        if (ranks[in.rank].locations.empty()) present++;
        ranks[in.rank].locations.push_back((int32_t)i);
        words += in.count;
        Decoder peek;
        peek.open(in);
        if (peek.next()) begin = std::min(begin, peek.seconds());
      }
    }
    const int64_t workers = (int64_t)threads * peers.count;
    for (int32_t rank = 0, n = 0; rank < run->rank_count; rank++) {
      const int64_t worker = std::min(workers - 1, n * workers / std::max<int64_t>(1, present));
      home[rank] = (int32_t)(worker / threads);
      owner[rank] = own(rank) ? (int)(worker % threads) : -1;
      n += !ranks[rank].locations.empty();
    }
    for (int64_t i = 0; i < L; i++)
      if (const int32_t rank = run->locations[i].rank; rank >= 0 && rank < run->rank_count && own(rank))
        locations[i].nodes.resize(N);
    for (int64_t c = 0; c < run->comm_count; c++) {
      comms[c].size = run->comm_starts[c + 1] - run->comm_starts[c];
      for (int32_t m = run->comm_starts[c]; m < run->comm_starts[c + 1]; m++)
        if (const int32_t rank = run->comm_members[m]; !missing(rank)) {
          comms[c].present++;
          comms[c].here += own(rank);
        }
    }
    kept = words_kept(words, L);
    // Stretches: the first is short, then as long as keeps the wanted number of events in memory.
    const int64_t wanted = std::max<int64_t>(60000, 50 * present);
    const int64_t most = std::max<int64_t>(20000, 4 * wanted / std::max<int64_t>(1, present));
    double stretch = 1e-3, until = begin + stretch;
    std::atomic<bool> more{words > 0};
    std::vector<uint8_t> alive(threads);
    bool last = false;
    int64_t total = 0;
    Team team(threads);
    team.run([&](int thread) {
      while (more) {
        bool here = false;
        for (int32_t rank = 0; rank < run->rank_count; rank++)
          if (owner[rank] == thread && !ranks[rank].locations.empty()) here |= decode(thread, rank, until, most);
        alive[thread] = here;
        team.meet([&] {
          bool any = std::any_of(alive.begin(), alive.end(), [](uint8_t a) { return a != 0; });
          total = exchange_decoded(any);
          last = !any;
        });
        match_mail(thread, last ? kEver : until);
        team.meet([&] {
          exchange_matches();
          number_instances();
        });
        for (int32_t rank = 0; rank < run->rank_count; rank++) {
          if (owner[rank] != thread || ranks[rank].locations.empty()) continue;
          settle(thread, rank, last);
          if (!last) drop(rank);
        }
        team.meet([&] {
          drop_foreign();
          leave_short_waits_out();
          const int64_t done = total - seen;
          seen = total;
          const double factor = done > 0 ? double(wanted) / double(done) : 8.0;
          stretch = std::max(1e-6, stretch * std::min(8.0, std::max(0.1, factor)));
          until += stretch;
          more = !last;
          for (Communicator &c : comms)
            while (!c.instances.empty() && c.instances.begin()->second->complete && c.instances.begin()->second->left <= 0) {
              c.base = c.instances.begin()->first + 1;
              c.instances.erase(c.instances.begin());
            }
          if (progress) progress(double(total));
        });
      }
      for (int32_t rank = 0; rank < run->rank_count; rank++)
        if (owner[rank] == thread) mark_out_of_order(ranks[rank]);
    });
    finish_own();
    hand_in();
    if (peers.own == 0) finish_all();
  }

  void finish_own() {
    const int64_t L = run->location_count;
    for (int64_t i = 0; i < L; i++) {
      LocationState &l = locations[i];
      const double rate = l.decoder.in->rate;
      for (int64_t n = 0; n < (int64_t)l.nodes.size(); n++) {
        if (l.nodes[n].ticks != 0) analysis->at(i, n)[TIME] = double(l.nodes[n].ticks) * rate;
        if (l.nodes[n].visits != 0) analysis->at(i, n)[VISITS] = double(l.nodes[n].visits);
      }
      if (l.started) {
        analysis->begins[i] = as_seconds(l, l.first);
        analysis->ends[i] = as_seconds(l, l.last);
      }
    }
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
      RankState &r = ranks[rank];
      if (!own(rank)) continue;
      for (int64_t k = r.sends.base; k < r.sends.end(); k++) {
        const Send &s = r.sends[k];
        counts[0].unmatched_sends += !s.matched && !s.cancelled && s.family == MESSAGE && s.receiver >= 0 && !s.skipped && !missing(s.receiver);
      }
      for (int64_t k = r.receives.base; k < r.receives.end(); k++)
        counts[0].unmatched_receives += !r.receives[k].matched && r.receives[k].family == MESSAGE &&
                                     !r.receives[k].skipped && !missing(r.receives[k].sender);
    }
  }

  void finish_all() {
    const int64_t L = run->location_count, N = run->node_count;
    lock_contention();
    analysis->sizes.assign(N * kSizes, 0);
    for (int t = 0; t < threads; t++) {
      for (int64_t k = 0; k < N * kSizes; k++) analysis->sizes[k] += sizes[t][k];
      analysis->counts.add(counts[t]);
    }
    std::vector<int64_t> waits_of(L, 0);
    for (RankState &r : ranks) {
      for (const Wait &w : r.waits) waits_of[w.location]++;
      analysis->pairs.insert(analysis->pairs.end(), r.pairs.list.begin(), r.pairs.list.end());
    }
    std::sort(analysis->pairs.begin(), analysis->pairs.end(), [](const Pair &a, const Pair &b) {
      return a.node != b.node ? a.node < b.node : a.sender != b.sender ? a.sender < b.sender : a.receiver < b.receiver;
    });
    for (Communicator &c : comms)
      for (auto &i : c.instances) analysis->counts.incomplete_collectives += i.second->arrived > 0 && !i.second->complete;
    analysis->wait_starts.assign(L + 1, 0);
    for (int64_t i = 0; i < L; i++) analysis->wait_starts[i + 1] = analysis->wait_starts[i] + waits_of[i];
    analysis->make_waits();
    Team team(threads);
    team.run([&](int thread) {
      for (int32_t rank = thread; rank < run->rank_count; rank += threads) hand_over(ranks[rank]);
    });
  }

  void hand_over(RankState &r) {
    std::vector<int64_t> at(r.locations.size());
    for (size_t k = 0; k < at.size(); k++) at[k] = analysis->wait_starts[r.locations[k]];
    for (const Wait &w : r.waits)
      for (size_t k = 0; k < at.size(); k++)
        if (r.locations[k] == w.location) analysis->waits[at[k]++] = w;
    std::vector<Wait>().swap(r.waits);
    Wait *all = analysis->waits.get();
    for (int32_t location : r.locations)
      sort_by_end(all + analysis->wait_starts[location], all + analysis->wait_starts[location + 1]);
  }
};

}  // namespace

extern "C" {

// Null where the exchange between processes failed, memory is short or threads are refused, which
// `why` gives. Of several processes only the first one's answer is whole.
WaitAnalysis *find_waits(const RunInput *run, int keep_causes, void (*progress)(double), const Peers *peers,
                         int *why) {
  try {
    auto analysis = std::make_unique<WaitAnalysis>();
    Replay replay;
    replay.run = run;
    replay.analysis = analysis.get();
    replay.keep_causes = keep_causes != 0;
    if (peers != nullptr) replay.peers = *peers;
    replay.go(progress);
    return analysis.release();
  } catch (const std::exception &) {
    *why = failure();
    return nullptr;
  }
}

void drop_analysis(WaitAnalysis *analysis) { delete analysis; }

const double *analysis_values(const WaitAnalysis *f) { return f->values.get(); }
const double *analysis_begins(const WaitAnalysis *f) { return f->begins.data(); }
const double *analysis_ends(const WaitAnalysis *f) { return f->ends.data(); }
const int64_t *analysis_open(const WaitAnalysis *f) { return f->open.data(); }
const int64_t *analysis_sizes(const WaitAnalysis *f) { return f->sizes.data(); }
const Pair *analysis_pairs(const WaitAnalysis *f, int64_t *count) {
  *count = (int64_t)f->pairs.size();
  return f->pairs.data();
}
int64_t analysis_wait_count(const WaitAnalysis *f) { return f->wait_count(); }
// The longest `most` waits by their begins, with the numbers of metrics for slots.
void analysis_waits(const WaitAnalysis *f, int64_t most, const int32_t *metrics, ListedWait *out) {
  list_waits(*f, most, metrics, out);
}
// Sets the charged call paths of listed waits, once root causes are known.
void analysis_delays(const WaitAnalysis *f, int64_t count, ListedWait *listed) { name_delays(*f, count, listed); }
void analysis_counts(const WaitAnalysis *f, int64_t *out) {
  std::memcpy(out, &f->counts, sizeof f->counts);
}
}
