// Runs a trace again with one thing changed, and says how long it would have taken.
//
// Every location goes through its events at three times at once: t as measured, b as replayed
// with nothing changed, c with the change. Outside of MPI the three go on alike, but where the
// change is to computing. A call of MPI has a begin, a measured length and moments elsewhere that
// it depends on: when messages were sent, receives posted, collectives entered. It ends at
//     max(begin + own, moment + transfer for each moment),
// where the parts are chosen so that b gives t again:
//   the call waited (the last moment is after its begin): transfer of the last moment is what is
//   left of the call after it, own the usual length of such calls that did not wait;
//   it did not wait: own is its length, transfer the usual one of such calls that did.
// The usual ones are means by kind of call and size, without what is far off. Dimemas and its kin
// do alike with prescribed figures: Labarta, Girona, Pillet, Cortes, Gregoris, Euro-Par 1996.
//
// A call that goes takes the time of its recording along, of which a part lies after it. The gain
// of an unrecorded run is predicted by a second pass that removes the cost of recording from every
// call and from the time after it: perturbation analysis as in Malony, Reed, Wijshoff, IEEE
// Transactions on Parallel and Distributed Systems 3, 1992.
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

#include "prediction.h"
#include "team.h"

namespace {

class WhatIf : causal::Matcher<WhatIf, Line, Sent, Moment, Entry> {
  friend causal::Replay<WhatIf, Line>;

 public:
  // Learns where `learnt` is null, otherwise predicts by what was learnt: the run as it was
  // recorded, or one that is not.
  WhatIf(const RunInput &run, const Settings &settings, const costs::Table *learnt,
         const std::vector<int64_t> &locations, bool recorded = true)
      : Matcher(run), set_(settings), learnt_(learnt), recorded_(recorded) {
    for (int64_t number : locations) {
      Line &line = replay_.add(run.locations[number].rank);
      line.stream.add(run.locations[number], number);
      line.location = number;
      if (settings.change == FASTER) line.factor = settings.factor;
    }
    collectives_.open(run, replay_.units_of_rank);
    if (learnt && settings.change == BALANCED) balance();
  }
  void run() { replay_.run(*this); }

  costs::Table costs;
  Prediction counts{};
  std::vector<Line> &lines() { return replay_.units; }

  void finish(Prediction &out) {
    out = counts;
    out.events = replay_.events;
    out.forced = replay_.forced;
    out.unmatched_sends = messages_.unmatched();
  }

  Step handle(Line &u) {
    Decoder &d = u.stream.now();
    const double t = d.seconds();
    if (!u.begun) {
      u.begun = true;
      u.first = t;
      u.now = {t, t, t};
    }
    switch (d.kind) {
      case HS_EVENT_ENTER: enter(u, d.node(d.payload), t); break;
      case HS_EVENT_LEAVE: return leave(u, d.node(d.payload), t);
      case HS_EVENT_SEND: start(u, d, t, nullptr); break;
      case HS_EVENT_ISEND: {
        Request pending;
        start(u, d, t, &pending);
        request(u, d.words[2]) = pending;
        break;
      }
      case HS_EVENT_ISEND_DONE:
        if (const Request *request = request_of(u, d.payload); request && request->sends) {
          if (!u.frames.empty()) part(u, request->bytes, costs::WAIT);
          if (request->message >= 0 && u.frames.empty()) messages_.done(request->message, causal::SENDER_DONE);
          else if (request->message >= 0) u.sends.push_back(request->message);
          forget(u, d.payload);
        }
        break;
      case HS_EVENT_RECV:
      case HS_EVENT_IRECV_DONE: return receive(u, d, t);
      case HS_EVENT_IRECV: {
        const causal::Promise promise = u.foresight.at_post(u.stream);
        if (!u.frames.empty())
          part(u, promise.known && promise.sender != HS_NOBODY ? promise.bytes : 1, costs::NOTHING);
        if (promise.known && promise.sender < (uint32_t)run_.rank_count)
          request(u, d.payload).message = await(u, d, promise.sender, promise.channel, moment(u, t));
        break;
      }
      case HS_EVENT_CANCELLED: forget(u, d.payload); break;
      case HS_EVENT_SKIPPED: skip(u, d); break;
      case HS_EVENT_COLLECTIVE: {
        const int32_t comm = d.comm(d.payload), place = d.place_in(d.payload);
        const Moment begin = u.frames.empty() ? moment(u, t) : u.frames.back().begin;
        if (u.blocked_in < 0) u.blocked_in = join(comm, place, d, begin);
        return part_from(u, comm, place, t);
      }
      case HS_EVENT_ICOLLECTIVE: {
        const int32_t comm = d.comm(d.payload), place = d.place_in(d.payload);
        const int64_t instance = join(comm, place, d, moment(u, t));
        if (instance >= 0) request(u, d.words[3]) = {-1, comm, place, instance};
        break;
      }
      case HS_EVENT_ICOLLECTIVE_DONE: {
        const Request *pending = request_of(u, d.payload);
        if (!pending || pending->instance < 0) break;
        const Request one = *pending;
        u.blocked_in = one.instance;
        const Step step = part_from(u, one.comm, one.place, t);
        if (step == Step::GO_ON) forget(u, d.payload);
        return step;
      }
      default: break;
    }
    return Step::GO_ON;
  }
  void end(Line &u) {
    if (u.begun) flush(u, std::max(u.now.t, u.stream.now().seconds()));
  }

 private:
  uint8_t flags(int32_t node) const { return node >= 0 ? set_.flags[node] : 0; }
  const Recording &recording(const Line &u) const {
    static const Recording nothing{};
    return set_.recording ? set_.recording[u.rank] : nothing;
  }

  // ---- time ----

  // The moment of an event at measured time t.
  Moment moment(const Line &u, double t) const {
    if (!u.frames.empty() && u.frames.back().inner == 0) {
      const Moment &begin = u.frames.back().begin;
      return begin.later(std::max(0.0, t - begin.t));
    }
    Moment now = u.now;
    const double seconds = std::max(0.0, t - now.t);
    now.t += seconds;
    if (!recorded_ && u.node >= 0 && run_.node_roles[u.node] == ROLE_MEASUREMENT) return now;
    now.b += std::max(0.0, seconds - u.owed.b);
    now.c += std::max(0.0, seconds - u.owed.c) * (flags(u.node) & SCALED ? u.factor : 1);
    return now;
  }
  // What is owed beyond the time that there is was estimated too large.
  void flush(Line &u, double t) {
    u.now = moment(u, t);
    u.owed = {};
  }
  void owe(Line &u, double seconds) {
    if (!recorded_) u.owed = {seconds, seconds};
  }

  void enter(Line &u, int32_t node, double t) {
    flush(u, t);
    u.node = node;
    const int32_t role = node >= 0 ? run_.node_roles[node] : ROLE_NONE;
    if (role >= ROLE_MPI && role <= ROLE_RMA_SYNC) {
      u.uses_mpi = true;
      Frame frame;
      frame.node = node, frame.role = role, frame.begin = u.now;
      frame.dependences = u.dependences.size(), frame.sends = u.sends.size();
      frame.all = {recording(u).call_within, recording(u).call_beyond};
      u.frames.push_back(frame);
      counts.tests += role == ROLE_TEST;
      counts.one_sided += role == ROLE_RMA_SYNC;
    } else {
      if (!u.frames.empty()) u.frames.back().inner++;
      owe(u, recording(u).call_within);
    }
    if (set_.change == BALANCED && learnt_ && flags(node) & OPENS) begin_visit(u);
  }
  Step leave(Line &u, int32_t node, double t) {
    if (!u.frames.empty() && u.frames.back().inner == 0) {
      if (settle(u, t) == Step::BLOCKED) return Step::BLOCKED;
      end_call(u, u.frames.back(), t);
      owe(u, u.frames.back().all.beyond);
      u.dependences.resize(u.frames.back().dependences);
      u.sends.resize(u.frames.back().sends);
      u.frames.pop_back();
    } else {
      flush(u, t);
      owe(u, recording(u).call_beyond);
      if (!u.frames.empty()) u.frames.back().inner--;
      if (flags(node) & OPENS) u.now.c += u.extra, u.extra = 0;
    }
    if (!u.frames.empty() && u.frames.back().inner == 0) u.frames.back().begin = u.now;
    u.node = node >= 0 ? run_.node_entered[node] : -1;
    return Step::GO_ON;
  }

  // ---- messages ----

  void part(Line &u, uint64_t bytes, int kind) {
    Frame &frame = u.frames.back();
    const Recording &cost = recording(u);
    const bool before = kind == costs::SEND || kind == costs::NOTHING;
    const Recorded one = before ? Recorded{cost.before_within, cost.before_beyond}
                                : Recorded{cost.after_within, cost.after_beyond};
    frame.all.add(one);
    if (!bytes) frame.of_empty.add(one);
    (bytes ? frame.full : frame.empty)++;
    frame.bytes = std::max(frame.bytes, bytes);
    if (frame.kind == costs::NOTHING) frame.kind = kind;
    else if (frame.kind == costs::SEND && kind == costs::RECEIVE) frame.kind = costs::EXCHANGE;
  }
  void start(Line &u, Decoder &d, double t, Request *request) {
    const uint64_t bytes = d.words[1];
    if (d.payload >= (uint32_t)run_.rank_count) return;
    if (!u.frames.empty()) part(u, bytes, costs::SEND);
    counts.empty_messages += bytes == 0;
    Sent sent;
    sent.at = moment(u, t);
    sent.bytes = bytes;
    sent.receiver = (int32_t)d.payload;
    if (set_.change == NETWORK) {  // messages of a rank leave it one after the other
      const double begin = std::max(sent.at.c, u.link_free);
      u.link_free = begin + (double)bytes / set_.bandwidth;
      sent.arrives = u.link_free + set_.latency;
    }
    const int32_t number = send(u, d, sent);
    bool kept = !learnt_ || flags(u.node) & SYNCHRONOUS || learnt_->waits((int64_t)bytes);
    kept = kept && !u.frames.empty();
    if (!kept) messages_.done(number, causal::SENDER_DONE);
    if (request) *request = {kept ? number : -1, -1, -1, -1, bytes, true};
    else if (kept) u.sends.push_back(number);
  }
  int32_t await(Line &u, const Decoder &d, uint32_t sender, uint64_t channel, const Moment &at) {
    const int32_t number = post(u, d, sender, channel, at);
    auto &m = messages_[number];
    if (m.state & causal::SENT) {
      replay_.wake(m.sender_waits);
      if (!learnt_ && !m.unseen) judge(m.send, m.post);
    }
    return number;
  }
  Step receive(Line &u, Decoder &d, double t) {
    const uint32_t sender = d.payload;
    if (sender >= (uint32_t)run_.rank_count) return Step::GO_ON;
    const bool posted_before = d.kind == HS_EVENT_IRECV_DONE;
    Frame *frame = u.frames.empty() ? nullptr : &u.frames.back();
    if (u.message < 0) {
      if (posted_before) {
        const Request *request = request_of(u, d.words[2]);
        if (request && !request->sends) u.message = request->message;
        forget(u, d.words[2]);
      }
      if (u.message < 0)
        u.message = await(u, d, sender, d.words[0], frame ? frame->begin : moment(u, t));
    }
    auto &m = messages_[u.message];
    if (waits_for_send(u, m, sender)) return Step::BLOCKED;
    if (!(m.state & causal::SENT)) {
      counts.unmatched_receives++;
    } else if (!m.unseen) {
      Dependence one{m.send.at, (double)m.send.bytes, m.send.bytes == 0, false};
      if (set_.change == NETWORK) one.on.c = m.send.arrives;
      depend(u, one, t);
    }
    if (frame) {
      const bool is_known = (d.words[1] & HS_BYTES_UNKNOWN) != HS_BYTES_UNKNOWN;
      part(u, is_known ? d.words[1] : m.state & causal::SENT && !m.unseen ? m.send.bytes : 1, posted_before ? costs::WAIT : costs::RECEIVE);
      frame->receives = true;
    }
    messages_.done(u.message, causal::RECEIVER_DONE);
    u.message = -1;
    return Step::GO_ON;
  }
  // Outside of a call (its region was not recorded) what it depends on takes effect at once.
  void depend(Line &u, const Dependence &one, double t) {
    if (!u.frames.empty()) {
      u.dependences.push_back(one);
      return;
    }
    flush(u, t);
    u.now.b = std::max(u.now.b, one.on.b);
    u.now.c = std::max(u.now.c, one.on.c);
  }
  // The sends that the call completes: those that wait depend on their receives.
  Step settle(Line &u, double t) {
    Frame &frame = u.frames.back();
    for (size_t i = frame.sends + u.replied; i < u.sends.size(); i++) {
      auto &m = messages_[u.sends[i]];
      if (!learnt_) {
        m.send.entered = frame.begin.t;
        m.send.left = t;
        m.send.kind = frame.receives ? costs::NOTHING : frame.kind;
        if (m.state & causal::POSTED && !m.unseen) judge(m.send, m.post);
      } else if (!(m.state & causal::POSTED)) {
        if (replay_.wait_for(u, m.send.receiver)) {
          m.sender_waits = u.number;
          return Step::BLOCKED;
        }
      } else if (!m.unseen) {
        u.dependences.push_back({m.post, (double)m.send.bytes, m.send.bytes == 0, true});
      }
      messages_.done(u.sends[i], causal::SENDER_DONE);
      u.replied++;
    }
    u.replied = 0;
    return Step::GO_ON;
  }
  // LEARN, when both sides are known: whether the send went away before there was a receive.
  void judge(const Sent &sent, const Moment &posted) {
    constexpr double kSure = 1e-6;  // seconds; clocks may differ
    if (std::isnan(sent.left)) return;
    if (sent.left + kSure < posted.t) costs.eager_most = std::max(costs.eager_most, (int64_t)sent.bytes);
    if (sent.kind == costs::NOTHING) return;
    const bool waited = posted.t > sent.entered && sent.left > posted.t;
    if (waited) costs.waiting_least = std::min(costs.waiting_least, (int64_t)sent.bytes);
    costs.add(sent.kind, sent.bytes, waited, sent.left - (waited ? posted.t : sent.entered));
  }

  // ---- collectives ----

  int64_t join(int32_t comm, int32_t place, const Decoder &d, const Moment &begin) {
    return causal::Matcher<WhatIf, Line, Sent, Moment, Entry>::enter(comm, place, d, {begin, d.words[1], d.words[2]});
  }
  Step part_from(Line &u, int32_t comm, int32_t place, double t) {
    if (u.blocked_in < 0) return Step::GO_ON;
    auto &one = collectives_.at(comm, u.blocked_in);
    if (waits_for_members(u, one, comm, place)) return Step::BLOCKED;
    const int32_t members = collectives_.size(comm);
    const Entry &own = one.entries[place];
    const double bytes = (double)std::max(own.sent, own.received);
    counts.one_sided -= one.operation == HS_OP_FENCE;
    if (!u.frames.empty() && one.operation < HS_OPERATIONS) {
      Frame &frame = u.frames.back();
      frame.operation = (int32_t)one.operation;
      frame.members = members;
      frame.all.add({recording(u).after_within, recording(u).after_beyond});
      frame.kind = costs::COLLECTIVE + (int)one.operation;
      frame.bytes = std::max(frame.bytes, (uint64_t)bytes);
    }
    const Moment last = members > 1 ? last_needed(one, place, t) : kNever;
    if (last.t > -INFINITY) depend(u, {last, bytes, false, false}, t);
    collectives_.leave(comm, u.blocked_in);
    u.blocked_in = -1;
    return Step::GO_ON;
  }
  // The latest enter that this member needs, whose call ends at t.
  Moment last_needed(causal::Instance<Entry> &one, int32_t place, double t) {
    const Flow flow = causal::flow_of(one.operation);
    const int32_t members = (int32_t)one.here.size();
    Entry::Summary &all = one.summary;
    Moment latest = kNever;
    switch (flow) {
      case Flow::NONE: break;
      case Flow::ONE_TO_ALL:
        if (one.root_place >= 0 && one.root_place != place) latest = one.entries[one.root_place].begin;
        break;
      case Flow::ALL_TO_ONE:
        for (int32_t i = 0; one.root_place == place && i < members; i++)
          if (gives(one, i) && i != place) latest.raise(one.entries[i].begin);
        break;
      case Flow::ALL_TO_ALL:
        if (!all.made)
          for (int32_t i = 0; i < members; i++)
            if (gives(one, i)) all.all.raise(one.entries[i].begin);
        all.made = one.missing == 0;
        latest = all.all;
        break;
      case Flow::UPWARDS:  // steps: by place, the latest of all below
        for (int32_t i = (int32_t)all.steps.size(); i <= place; i++) {
          Moment before = i > 0 ? all.steps.back().second : kNever;
          if (i > 0 && gives(one, i - 1)) before.raise(one.entries[i - 1].begin);
          all.steps.emplace_back(0, before);
        }
        latest = all.steps[place].second;
        break;
      case Flow::LOOSE: {
        if (!all.made) {
          all.steps.clear();
          for (int32_t i = 0; i < members; i++)
            if (one.here[i]) all.steps.emplace_back(one.entries[i].begin.t, one.entries[i].begin);
          std::stable_sort(all.steps.begin(), all.steps.end(),
                           [](const auto &a, const auto &b) { return a.first < b.first; });
          for (size_t i = 1; i < all.steps.size(); i++)
            all.steps[i].second.raise(all.steps[i - 1].second);
          all.made = one.missing == 0;
        }
        auto after = std::upper_bound(all.steps.begin(), all.steps.end(), t,
                                      [](double at, const auto &step) { return at < step.first; });
        if (after != all.steps.begin()) latest = std::prev(after)->second;
        break;
      }
    }
    return latest;
  }

  // ---- the end of a call ----

  void end_call(Line &u, const Frame &frame, double t) {
    const Dependence *first = u.dependences.data() + frame.dependences;
    const Dependence *last = u.dependences.data() + u.dependences.size();
    const double length = std::max(0.0, t - frame.begin.t);
    double latest = -INFINITY;
    for (const Dependence *one = first; one < last; one++) latest = std::max(latest, one->on.t);
    const bool waited = latest > frame.begin.t;
    const double rest = std::max(0.0, t - latest);  // of the call, after the last moment
    if (!learnt_) {
      if (frame.kind != costs::NOTHING && first < last)  // else see judge()
        costs.add(frame.kind, frame.bytes, waited, waited ? rest : length);
      u.now = frame.begin.later(length);
      return;
    }
    const costs::Usual usual = learnt_->usual(frame.kind, frame.bytes);
    // What is waited for has been recorded, too, much like this call.
    const double within = recorded_ ? 0 : frame.all.within;
    auto unrecorded = [&](double seconds) { return std::max(0.0, seconds - within); };
    const double own = unrecorded(waited ? std::min(usual.own, length) : length);
    auto transfer = [&](const Dependence &one) {
      const double most = std::max(0.0, t - one.on.t);
      return unrecorded(waited && one.on.t == latest ? most : std::min(usual.transfer, most));
    };
    Moment now = frame.begin;
    now.t = t;
    now.b += own;
    for (const Dependence *one = first; one < last; one++)
      now.b = std::max(now.b, one->on.b + transfer(*one));
    bool on_network = frame.role != ROLE_MPI && !(flags(frame.node) & KEPT);
    if (set_.change == IDEAL || set_.change == NETWORK) {
      now.c += on_network ? 0 : own;
      for (const Dependence *one = first; one < last; one++) {
        if (on_network && one->reply && set_.change == IDEAL && !(flags(frame.node) & SYNCHRONOUS)) continue;
        now.c = std::max(now.c, one->on.c + (on_network ? network_delay(frame, *one) : transfer(*one)));
      }
    } else if (set_.change == NO_EMPTY && frame.empty > 0 && frame.operation == 0) {
      counts.emptied_calls += frame.full == 0;
      u.owed.c = (frame.full > 0 ? frame.of_empty : frame.all).beyond;  // it lies after the call
      bool needs = false;
      for (const Dependence *one = first; one < last; one++) needs |= !one->empty;
      if (frame.full > 0) {
        const double share = waited ? 1 : (double)frame.full / (frame.full + frame.empty);
        now.c += needs ? own * share : unrecorded(std::min(usual.least, length));
        for (const Dependence *one = first; one < last; one++)
          if (!one->empty) now.c = std::max(now.c, one->on.c + transfer(*one));
      }
    } else {
      now.c += own;
      for (const Dependence *one = first; one < last; one++)
        now.c = std::max(now.c, one->on.c + transfer(*one));
    }
    u.now = now;
  }
  // Seconds from a moment that a call depends on to its end. A collective is a tree.
  double network_delay(const Frame &frame, const Dependence &one) const {
    if (set_.change == IDEAL || (frame.operation == 0 && !one.reply)) return 0;
    const double steps = frame.operation ? std::ceil(std::log2(std::max(frame.members, 2))) : 1;
    return steps * set_.latency + one.bytes / set_.bandwidth;
  }

  // ---- balance ----

  // Seconds of computing in each outermost visit of the region.
  Visits visits_of(const LocationInput &location) const {
    Visits visits;
    Decoder d;
    d.open(location);
    int32_t node = -1;
    double before = 0;
    while (d.next()) {
      if (d.kind != HS_EVENT_ENTER && d.kind != HS_EVENT_LEAVE) continue;
      const double t = d.seconds();
      if (flags(node) & SCALED && !visits.seconds.empty()) visits.seconds.back() += std::max(0.0, t - before);
      before = t;
      node = d.node(d.payload);
      if (d.kind == HS_EVENT_LEAVE) node = node >= 0 ? run_.node_entered[node] : -1;
      else if (flags(node) & OPENS) visits.seconds.push_back(0);
    }
    return visits;
  }
  void balance() {
    const int64_t count = (int64_t)replay_.units.size();
    visits_.resize(count);
    std::atomic<int64_t> taken{0};
    Team team(std::max(1, std::min(run_.threads, (int32_t)count)));
    team.run([&](int) {
      for (int64_t i; (i = taken.fetch_add(1)) < count;)
        visits_[i] = visits_of(run_.locations[replay_.units[i].location]);
    });
    std::vector<int64_t> shares;
    counts.least_visits = INT64_MAX;
    for (const Visits &one : visits_) {
      const int64_t visits = (int64_t)one.seconds.size();
      counts.least_visits = std::min(counts.least_visits, visits);
      counts.most_visits = std::max(counts.most_visits, visits);
      if (visits > (int64_t)means_.size()) means_.resize(visits), shares.resize(visits);
      for (int64_t i = 0; i < visits; i++) means_[i] += one.seconds[i], shares[i]++;
    }
    for (size_t i = 0; i < means_.size(); i++) means_[i] /= (double)shares[i];
  }
  void begin_visit(Line &u) {
    const std::vector<double> &own = visits_[u.number].seconds;
    u.factor = 1;
    if (++u.visit >= (int64_t)own.size()) return;
    if (own[u.visit] > 0) u.factor = means_[u.visit] / own[u.visit];
    else u.extra = means_[u.visit];
  }

  const Settings set_;
  const costs::Table *learnt_;
  const bool recorded_;
  std::vector<Visits> visits_;
  std::vector<double> means_;  // by visit
};

}  // namespace

extern "C" int whatif_predict(const RunInput *run, const Settings *settings, Prediction *out) {
  try {
    std::vector<int64_t> locations;
    for (int64_t i = 0; i < run->location_count; i++)
      if (!run->locations[i].is_stream && run->locations[i].count > 0) locations.push_back(i);
    double *by_rank = out->by_rank;
    WhatIf learning(*run, *settings, nullptr, locations);
    learning.run();
    // Threads without MPI go along with the thread that starts them.
    std::vector<uint8_t> has_mpi(run->rank_count, 0), taken(run->rank_count, 0);
    for (const Line &line : learning.lines()) has_mpi[line.rank] |= line.uses_mpi;
    locations.clear();
    for (const Line &line : learning.lines()) {
      if (!line.begun || (has_mpi[line.rank] ? !line.uses_mpi : taken[line.rank])) continue;
      taken[line.rank] = 1;
      locations.push_back(line.location);
    }
    learning.costs.settle();
    double unrecorded = NAN;
    if (settings->recording) {
      WhatIf without(*run, *settings, &learning.costs, locations, false);
      without.run();
      double baseline = -INFINITY, predicted = -INFINITY;
      for (const Line &line : without.lines()) {
        baseline = std::max(baseline, line.now.b);
        predicted = std::max(predicted, line.now.c);
      }
      unrecorded = baseline - predicted;
    }
    WhatIf predicting(*run, *settings, &learning.costs, locations);
    predicting.run();
    predicting.finish(*out);
    out->unrecorded_gain = unrecorded;
    out->by_rank = by_rank;
    double first = INFINITY, measured = -INFINITY, baseline = -INFINITY, predicted = -INFINITY;
    for (int32_t rank = 0; rank < run->rank_count; rank++) by_rank[rank] = NAN;
    for (const Line &line : predicting.lines()) {
      first = std::min(first, line.first);
      measured = std::max(measured, line.now.t);
      baseline = std::max(baseline, line.now.b);
      predicted = std::max(predicted, line.now.c);
      by_rank[line.rank] = std::fmax(by_rank[line.rank], line.now.c);
    }
    double spent = 0;
    for (const Line &line : predicting.lines()) spent += line.now.t - line.first;
    out->excess = spent > 0 ? learning.costs.excess() / spent : 0;
    if (predicting.lines().empty()) first = measured = baseline = predicted = 0;
    for (int32_t rank = 0; rank < run->rank_count; rank++) by_rank[rank] -= first;
    out->measured = measured - first;
    out->baseline = baseline - first;
    out->predicted = predicted - first;
    return NONE;
  } catch (const std::exception &) {
    return failure();
  }
}
