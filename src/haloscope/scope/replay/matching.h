// Second and third part: matches messages with receives and the members of collectives; then computes
// the waits of calls whose partners are all known, and drops what is done with.
#pragma once

#include <cmath>
#include <functional>

#include "reading.h"

constexpr size_t kMostHeld = 65536;  // receives of a rank that wait for ones posted before them
constexpr double kEver = 1e300;

struct Matching : Reading {
  static Key channel_of(int32_t sender, int32_t comm, int32_t tag, int32_t family) {
    return {(uint64_t)(uint32_t)sender << 32 | (uint32_t)comm, (uint64_t)(uint32_t)tag << 32 | (uint32_t)family};
  }

  // The send that has this number here, and a receive. A side that was not recorded does not name
  // its partner.
  void pair_up(int thread, RankState &to, int32_t receiver, int64_t number, Send &s, Receive &m) {
    if (!s.skipped && !m.skipped) {
      match(thread, number, s, m);
      note_pair(to, receiver, s, m, m.sender);
      if (m.size_unknown && m.node >= 0) {
        double *values = analysis->at(m.location, m.node);
        values[BYTES_RECEIVED] += double(s.bytes);
        values[EMPTY_RECEIVED] += s.bytes == 0;
      }
      if (s.unsure || m.unsure) {
        s.receive_enter = kEver;
        m.unsure = true;
      }
      return;
    }
    if (m.left == 0) {
      m.matched = true;
      m.unsure = true;
      m.used |= m.skipped;
    }
    if (s.left == 0) {
      s.matched = true;
      s.receive_enter = kEver;
      if (owner[m.sender] < 0)
        outboxes[thread][home[m.sender]].matches.push_back(
            {m.sender, -1, -1, ranks[m.sender].origins[number], kEver, 0});
    }
  }

  // The message that has this number here, and a receive.
  void match(int thread, int64_t number, Send &s, Receive &m) {
    s.matched = m.matched = true;
    s.receive_enter = m.posted;
    s.receive_location = m.posted_location;
    s.receive_node = m.posted_node;
    s.receive_at = m.posted_at;
    m.send_enter = s.enter;
    m.send_location = s.location;
    m.send_node = s.node;
    m.send_at = s.at;
    m.last_access = s.last_access;
    if (owner[m.sender] < 0)
      outboxes[thread][home[m.sender]].matches.push_back(
          {m.sender, s.receive_location, s.receive_node, ranks[m.sender].origins[number],
           s.unsure || m.unsure ? kEver : s.receive_enter, s.receive_at});
  }

  void note_pair(RankState &to, int32_t receiver, const Send &s, const Receive &m, int32_t sender) {
    if (s.family != MESSAGE || s.node < 0) return;
    Pair &p = to.pairs.get(s.node, sender, receiver);
    p.messages++;
    p.empty += s.bytes == 0;
    p.bytes += (int64_t)s.bytes;
    p.seconds += std::max(0.0, m.leave - std::max(s.enter, m.enter));
    p.receive_seconds += (m.leave - m.enter) / m.together;
  }

  // Messages of a channel go to receives in the order in which these were posted, not completed.
  void match_receives(int thread, RankState &r, int32_t rank, bool all) {
    auto earlier = [&](int64_t a, int64_t b) { return r.receives[a].order < r.receives[b].order; };
    if (!std::is_sorted(r.held.begin(), r.held.end(), earlier))
      std::sort(r.held.begin(), r.held.end(), earlier);
    while (r.posted.head < r.posted.end() && !r.posted[r.posted.head]) r.posted.head++;
    const size_t forced = all ? r.held.size() : r.held.size() > kMostHeld ? r.held.size() / 2 : 0;
    size_t done = 0;
    for (; done < r.held.size(); done++) {
      const int64_t number = r.held[done];
      Receive &m = r.receives[number];
      if (done >= forced && m.order >= r.posted.head) break;
      Channel &c = r.channels.get(channel_of(m.sender, m.comm, m.tag, m.family));
      RankState &source = ranks[m.sender];
      meet(m, c.sends, source.sends,
           [&](int64_t sent, Send &s) { pair_up(thread, r, rank, sent, s, m); },
           [](Send &s) {
             s.queued &= !s.cancelled;
             return s.cancelled;
           });
      if (m.left > 0) wait_in(c.receives, r.receives, number);
    }
    r.held.erase(r.held.begin(), r.held.begin() + done);
    r.posted.drop_before(r.posted.head);
  }

  // A receive that ends after `until` waits: what cancels its sender's message may still come.
  void match_mail(int thread, double until) {
    for (int from = 0; from < threads; from++) {
      auto &box = mail[from][thread];
      for (const SendNote &note : box) {
        RankState &source = ranks[note.sender], &target = ranks[note.receiver];
        Send &s = source.sends[note.number];
        if (s.cancelled) continue;
        Channel &c = target.channels.get(channel_of(note.sender, s.comm, s.tag, s.family));
        // Receives may already wait for it.
        meet(s, c.receives, target.receives,
             [&](int64_t, Receive &m) { pair_up(thread, target, note.receiver, note.number, s, m); });
        if (s.left > 0) {
          s.queued = true;
          wait_in(c.sends, source.sends, note.number);
        }
      }
      box.clear();
    }
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
      if (owner[rank] != thread) continue;
      RankState &r = ranks[rank];
      for (; r.matched_to < r.receives.end(); r.matched_to++) {
        Receive &m = r.receives[r.matched_to];
        if (m.leave > until) break;
        if (r.posted.holds(m.order)) r.posted[m.order] = 0;
        if (!missing(m.sender)) r.held.push_back(r.matched_to);
        else m.used |= m.skipped;
      }
      match_receives(thread, r, rank, until == kEver);
    }
    for (int from = 0; from < threads; from++) {
      for (const Access &a : access_mail[from][thread])
        instance_of(a.comm, a.instance)->accesses.push_back({a.target, a.time});
      access_mail[from][thread].clear();
    }
    for (int from = 0; from < threads; from++) {
      for (const Arrival &a : arrivals[from][thread]) arrive(thread, a);
      arrivals[from][thread].clear();
    }
  }

  Instance *instance_of(int32_t comm, int64_t number) {
    Communicator &c = comms[comm];
    std::unique_ptr<Instance> &held = c.instances[number];
    if (held) return held.get();
    held = std::make_unique<Instance>();
    Instance &i = *held;
    i.left = c.here;
    i.enters.assign(c.size, -1e300);
    i.locations.assign(c.size, -1);
    i.nodes.assign(c.size, -1);
    i.at.assign(c.size, 0);
    i.contributes.assign(c.size, 0);
    for (const Communicator::Skip &skip : c.skips)
      if (skip.from <= number && number < skip.to) skip_in(c, i, skip);
    return held.get();
  }

  static void skip_in(const Communicator &c, Instance &i, const Communicator::Skip &skip) {
    i.skipped = true;
    i.left -= skip.here;
    if (++i.arrived == c.present) i.complete = true;
  }

  // A member took part in these unrecorded: nobody waits for it there, and nobody's wait is known.
  void skip_instances(const Arrival &a) {
    Communicator &c = comms[a.comm];
    const int32_t *members = run->comm_members + run->comm_starts[a.comm];
    const Communicator::Skip skip{a.instance, a.instance + a.skipped, owner[members[a.place]] >= 0};
    for (auto at = c.instances.lower_bound(skip.from); at != c.instances.end() && at->first < skip.to; ++at)
      skip_in(c, *at->second, skip);
    if (c.reached.empty()) c.reached.assign(c.size, 0);
    c.reached[a.place] = skip.to;
    if (c.skips.size() >= c.skips_kept) {
      int64_t low = INT64_MAX;
      for (int32_t place = 0; place < c.size; place++)
        if (!missing(members[place])) low = std::min(low, c.reached[place]);
      const auto over = [low](const Communicator::Skip &one) { return one.to <= low; };
      c.skips.erase(std::remove_if(c.skips.begin(), c.skips.end(), over), c.skips.end());
      c.skips_kept = std::max<size_t>(64, 2 * c.skips.size());
    }
    c.skips.push_back(skip);
  }

  void arrive(int thread, const Arrival &a) {
    Communicator &c = comms[a.comm];
    const int is_counted = peers.own == 0;  // all processes are told of all arrivals
    if (a.place < 0 || a.place >= c.size || a.instance < c.base) { counts[thread].unknown += is_counted; return; }
    if (a.skipped > 0) {
      skip_instances(a);
      return;
    }
    if (!c.reached.empty()) c.reached[a.place] = a.instance + 1;
    Instance &i = *instance_of(a.comm, a.instance);
    if (i.locations[a.place] >= 0) { counts[thread].unknown += is_counted; return; }
    i.operation = a.operation;
    i.enters[a.place] = a.enter;
    i.locations[a.place] = a.location;
    i.nodes[a.place] = a.node;
    i.at[a.place] = a.at;
    i.contributes[a.place] = a.contributes;
    const bool always = a.operation == HS_OP_BARRIER || a.operation == HS_OP_INIT ||
                        a.operation == HS_OP_FINALIZE || a.operation == HS_OP_FENCE;
    const int32_t *members = run->comm_members + run->comm_starts[a.comm];
    const bool is_root = (uint32_t)members[a.place] == a.root;
    if (is_root) i.root_place = a.place;
    if ((always || a.contributes) && a.enter > i.max_enter) { i.max_enter = a.enter; i.last = a.place; }
    if (a.contributes && !is_root && a.enter > i.max_sender) { i.max_sender = a.enter; i.last_sender = a.place; }
    i.min_leave = std::min(i.min_leave, a.leave);
    i.max_leave = std::max(i.max_leave, a.leave);
    if (++i.arrived == c.present) i.complete = true;
  }
};

constexpr int kLateSendersKept = 64;  // late messages that a later one may turn out to precede

struct Settling : Matching {
  // Calls and collectives of a rank whose partners are all known, in order.
  void settle(int thread, int32_t rank, bool last) {
    RankState &r = ranks[rank];
    const size_t before = r.waits.size();
    for (; r.calls.head < r.calls.end(); r.calls.head++) {
      const Call &call = r.calls[r.calls.head];
      if (!last) {
        bool ready = true;
        for (int32_t i = 0; i < call.receives && ready; i++) {
          const Receive &m = r.receives[r.taken[call.first_receive + i]];
          ready = m.matched || missing(m.sender);
        }
        for (int32_t i = 0; i < call.dones && ready; i++) {
          const Send &s = r.sends[r.dones[call.first_done + i]];
          ready = s.matched || s.cancelled || missing(s.receiver);
        }
        if (!ready) break;
      }
      settle_call(r, call);
      for (int32_t i = 0; i < call.dones; i++) r.sends[r.dones[call.first_done + i]].used = true;
      for (int32_t i = 0; i < call.receives; i++) r.receives[r.taken[call.first_receive + i]].used = true;
      r.taken.head = call.first_receive + call.receives;
      r.dones.head = call.first_done + call.dones;
    }
    for (; r.collectives.head < r.collectives.end(); r.collectives.head++) {
      const Collective &c = r.collectives[r.collectives.head];
      Instance *i = comms[c.comm].at(c.instance);
      if (i != nullptr && !i->complete && !last) break;
      if (i != nullptr) {
        if (i->complete && !i->skipped) settle_collective(thread, r, c, *i);
        i->left--;
      }
    }
    sort_by_end(r.waits.begin() + (int64_t)before, r.waits.end());
  }

  template <class Iterator>
  static void sort_by_end(Iterator first, Iterator last) {
    const auto earlier = [](const Wait &a, const Wait &b) { return a.end < b.end; };
    if (!std::is_sorted(first, last, earlier)) std::stable_sort(first, last, earlier);
  }

  // Without root causes only the longest waits are asked for: those below `least` are left out.
  void log(RankState &r, const Wait &wait) {
    if (wait.end - wait.begin >= least) r.waits.push_back(wait);
  }

  // Keeps memory bounded where root causes are not looked for; `threads` that meet are here alone.
  void leave_short_waits_out() {
    constexpr size_t kMost = 4 << 20, kKept = 2 << 20;  // of which results keep a part
    size_t count = 0;
    for (const RankState &r : ranks) count += r.waits.size();
    if (keep_causes || count <= kMost) return;
    std::vector<double> lengths;
    lengths.reserve(count);
    for (const RankState &r : ranks)
      for (const Wait &w : r.waits) lengths.push_back(w.end - w.begin);
    std::nth_element(lengths.begin(), lengths.begin() + kKept, lengths.end(), std::greater<double>());
    // Above it, not at it: many may be of one length.
    least = std::nextafter(lengths[kKept], 1e300);
    for (RankState &r : ranks) {
      const auto short_one = [&](const Wait &w) { return !(w.end - w.begin >= least); };
      r.waits.erase(std::remove_if(r.waits.begin(), r.waits.end(), short_one), r.waits.end());
      auto &marked = r.out_of_order;
      const auto shorter = [&](const OutOfOrder &one) { return !(one.amount >= least); };
      marked.erase(std::remove_if(marked.begin(), marked.end(), shorter), marked.end());
    }
  }

  static Slot slot_of(const Call &call, Slot wait) { return call.empty ? P2P_SYNCHRONISATION : wait; }

  void settle_call(RankState &r, const Call &call) {
    if (call.test || call.node < 0) {
      note_order(r, call);
      return;
    }
    double longest[4] = {0, 0, 0, 0};
    const Receive *latest[4] = {nullptr, nullptr, nullptr, nullptr};
    for (int32_t i = 0; i < call.receives; i++) {
      const Receive &m = r.receives[r.taken[call.first_receive + i]];
      if (!m.matched || m.unsure) continue;
      const double wait = std::min(m.send_enter, call.leave) - call.enter;
      if (wait > longest[m.family]) { longest[m.family] = wait; latest[m.family] = &m; }
    }
    double blocked = 0;
    const Send *blocked_send = nullptr;
    for (int32_t i = 0; i < call.dones; i++) {
      const Send &s = r.sends[r.dones[call.first_done + i]];
      if (!s.matched || s.family != MESSAGE || s.receive_enter >= call.leave) continue;
      const double wait = s.receive_enter - call.enter;
      if (wait > blocked) { blocked = wait; blocked_send = &s; }
    }
    double *values = analysis->at(call.location, call.node);
    const Receive *late = latest[MESSAGE];
    if (late != nullptr && longest[MESSAGE] >= blocked) {
      if (!call.empty) {
        values[LATE_SENDER] += longest[MESSAGE];
        values[LATE_SENDERS] += 1;
      }
      log(r, {call.enter, call.enter + longest[MESSAGE], (uint64_t)call.at, slot_of(call, LATE_SENDER),
              (uint64_t)late->send_at, false, call.node, call.location, late->send_node, late->send_location});
    } else if (blocked_send != nullptr) {
      if (!call.empty) {
        values[LATE_RECEIVER] += blocked;
        values[LATE_RECEIVERS] += 1;
      }
      log(r, {call.enter, call.enter + blocked, (uint64_t)call.at, slot_of(call, LATE_RECEIVER),
              (uint64_t)blocked_send->receive_at, false, call.node, call.location,
              blocked_send->receive_node, blocked_send->receive_location});
    }
    for (int family : {POST_START, POST_COMPLETE, COMPLETE_WAIT}) {
      const Receive *m = latest[family];
      if (m == nullptr) continue;
      const Slot slot = family == COMPLETE_WAIT ? EARLY_WAIT : LATE_POST;
      values[slot] += longest[family];
      if (family == COMPLETE_WAIT)
        values[LATE_COMPLETE] += std::min(longest[family], std::max(0.0, m->send_enter - std::max(m->last_access, call.enter)));
      log(r, {call.enter, call.enter + longest[family], (uint64_t)call.at, slot, (uint64_t)m->send_at,
              false, call.node, call.location, m->send_node, m->send_location});
    }
    note_order(r, call);
    if (late != nullptr && longest[MESSAGE] >= blocked && !call.empty) {
      if ((int)r.late.size() >= kLateSendersKept) r.late.erase(r.late.begin());
      r.late.push_back({late->send_enter, longest[MESSAGE], call.at, late->sender, call.node, call.location});
      r.latest_late = std::max(r.latest_late, late->send_enter);
    }
  }

  // A message that arrives now but was sent before one that was waited for earlier.
  void note_order(RankState &r, const Call &call) {
    if (r.late.empty()) return;
    for (int32_t i = 0; i < call.receives; i++) {
      const Receive &m = r.receives[r.taken[call.first_receive + i]];
      if (!m.matched || m.unsure || m.family != MESSAGE || m.send_enter >= r.latest_late) continue;
      for (size_t k = 0; k < r.late.size();) {
        if (r.late[k].send_enter > m.send_enter) {
          const LateMessage &one = r.late[k];
          const Slot slot = one.sender == m.sender ? WRONG_ORDER_SAME : WRONG_ORDER_DIFFERENT;
          analysis->at(one.location, one.node)[slot] += one.amount;
          if (one.amount >= least) r.out_of_order.push_back({one.at, one.amount, one.location, (uint8_t)slot});
          r.late.erase(r.late.begin() + k);
        } else {
          k++;
        }
      }
      r.latest_late = -1e300;
      for (const LateMessage &one : r.late) r.latest_late = std::max(r.latest_late, one.send_enter);
    }
  }

  // Waits that turned out to be out of order get the metric of that, once all are known.
  static void mark_out_of_order(RankState &r) {
    auto &marked = r.out_of_order;
    if (marked.empty()) return;
    std::sort(marked.begin(), marked.end(), [](const OutOfOrder &a, const OutOfOrder &b) { return a.key() < b.key(); });
    for (Wait &w : r.waits) {
      if (w.slot != LATE_SENDER) continue;
      const std::pair<int32_t, int64_t> key{w.location, (int64_t)w.at};
      const auto one = std::lower_bound(marked.begin(), marked.end(), key,
                                        [](const OutOfOrder &a, const auto &wanted) { return a.key() < wanted; });
      if (one != marked.end() && one->key() == key) w.slot = one->slot;
    }
    std::vector<OutOfOrder>().swap(marked);
  }

  void settle_collective(int thread, RankState &r, const Collective &c, Instance &i) {
    const int32_t size = comms[c.comm].size;
    if (size < 2 || c.node < 0) return;
    double *values = analysis->at(c.location, c.node);
    const double B = c.enter, E = c.leave;
    const double until_last = std::min(i.max_enter, E) - B;
    const double completion = E - std::max({i.min_leave, std::min(i.max_enter, E), B});
    const bool payload = c.sent + c.received > 0;
    auto wait = [&](Slot slot, double amount, int32_t place) {
      if (amount <= 0 || place < 0 || place == c.place) return;
      values[slot] += amount;
      log(r, {B, B + amount, (uint64_t)c.at, slot, (uint64_t)i.at[place], i.number >= 0, c.node,
              c.location, i.nodes[place], i.locations[place]});
    };
    switch (c.operation) {
      case HS_OP_BARRIER:
        wait(WAIT_AT_BARRIER, until_last, i.last);
        values[BARRIER_COMPLETION] += completion;
        break;
      case HS_OP_ALLREDUCE: case HS_OP_ALLGATHER: case HS_OP_ALLGATHERV: case HS_OP_ALLTOALL:
      case HS_OP_ALLTOALLV: case HS_OP_ALLTOALLW: case HS_OP_REDUCE_SCATTER:
      case HS_OP_REDUCE_SCATTER_BLOCK:
        if (!payload || i.last < 0) break;
        wait(WAIT_AT_NXN, until_last, i.last);
        values[NXN_COMPLETION] += completion;
        break;
      case HS_OP_BROADCAST: case HS_OP_SCATTER: case HS_OP_SCATTERV:
        if (!payload || i.root_place < 0 || i.root_place == c.place) break;
        wait(LATE_BROADCAST, std::min(i.enters[i.root_place], E) - B, i.root_place);
        break;
      case HS_OP_REDUCE: case HS_OP_GATHER: case HS_OP_GATHERV:
        if (!payload || i.root_place != c.place || i.last_sender < 0) break;
        wait(EARLY_REDUCE, std::min(i.max_sender, E) - B, i.last_sender);
        break;
      case HS_OP_SCAN: case HS_OP_EXSCAN: {
        if (!payload) break;
        int32_t latest = -1;
        for (int32_t place = 0; place < c.place; place++)
          if (i.contributes[place] && (latest < 0 || i.enters[place] > i.enters[latest])) latest = place;
        const double lower = latest < 0 ? B : i.enters[latest];
        wait(EARLY_SCAN, std::min(lower, E) - B, latest);
        values[SCAN_COMPLETION] += std::max(0.0, E - std::max(B, lower));
        if (c.place == 0) {
          counts[thread].scans++;
          counts[thread].scans_synchronising += i.min_leave >= i.max_enter;
        }
        break;
      }
      case HS_OP_INIT:
        values[INIT_COMPLETION] += completion;
        break;
      case HS_OP_FINALIZE:
        wait(WAIT_AT_FINALIZE, until_last, i.last);
        break;
      case HS_OP_FENCE: {
        wait(WAIT_AT_FENCE, until_last, i.last);
        double latest = -1e300;
        for (const auto &[target, time] : i.accesses)
          if (target == locations[c.location].decoder.in->rank) latest = std::max(latest, time);
        if (until_last > 0) values[EARLY_FENCE] += std::max(0.0, std::min(std::min(latest, E), B + until_last) - B);
        break;
      }
      default: break;
    }
  }

  // Synchronising collectives get a number, by which waits and root causes refer to them.
  void number_instances() {
    for (size_t comm = 0; comm < comms.size(); comm++) {
      Communicator &c = comms[comm];
      if (c.size < 2) continue;
      for (auto &held : c.instances) {
        Instance &i = *held.second;
        if (!i.complete || i.skipped || i.number >= 0 || !keep_causes) continue;
        const int o = i.operation;
        const bool synchronises = o == HS_OP_BARRIER || o == HS_OP_FENCE || o == HS_OP_INIT || o == HS_OP_FINALIZE ||
                                  (o >= HS_OP_ALLREDUCE && o <= HS_OP_REDUCE_SCATTER_BLOCK && i.last >= 0);
        if (!synchronises) continue;
        i.number = (int32_t)analysis->synchronisations.size();
        analysis->synchronisations.push_back({(int32_t)comm, i.locations, i.at, i.enters,
                                              *std::max_element(i.enters.begin(), i.enters.end())});
      }
    }
  }

  void drop(int32_t rank) {
    RankState &r = ranks[rank];
    while (r.receives.head < r.matched_to && r.receives[r.receives.head].used) r.receives.head++;
    r.receives.drop_before(r.receives.head);
    r.taken.drop_before(r.taken.head);
    r.dones.drop_before(r.dones.head);
    r.calls.drop_before(r.calls.head);
    r.collectives.drop_before(r.collectives.head);
    int64_t &head = r.sends.head;
    while (head < r.sends.end()) {
      const Send &s = r.sends[head];
      const bool finished = (s.matched || missing(s.receiver) || (s.cancelled && !s.queued)) &&
                            (s.used || s.cancelled || s.family != MESSAGE);
      if (!finished) break;
      head++;
    }
    r.sends.drop_before(head);
    for (int32_t index : r.locations) locations[index].decoder.give_back(kept);
  }

  // Who has a lock first has it until it enters the unlock at least; where the unlock is over before
  // the other's call is, until then.
  void lock_contention() {
    std::vector<Lock> all;
    for (RankState &r : ranks) all.insert(all.end(), r.locks.begin(), r.locks.end());
    std::sort(all.begin(), all.end(), [](const Lock &a, const Lock &b) {
      if (a.window != b.window) return a.window < b.window;
      if (a.target != b.target) return a.target < b.target;
      return a.lock_leave != b.lock_leave ? a.lock_leave < b.lock_leave : a.location < b.location;
    });
    constexpr size_t kMostBefore = 256;
    for (size_t i = 0; i < all.size(); i++) {
      const Lock &own = all[i];
      double lock_to = own.lock_enter, unlock_to = own.unlock_enter;
      size_t first = i;
      while (first > 0 && all[first - 1].window == own.window && all[first - 1].target == own.target &&
             i - first < kMostBefore)
        first--;
      for (size_t k = first; k < i; k++) {
        const Lock &held = all[k];
        if (held.location == own.location || !(held.exclusive || own.exclusive)) continue;
        auto overlap = [&](double leave, double &done, int32_t node, int64_t at) {
          const double until = held.unlock_leave <= leave ? held.unlock_leave : held.unlock_enter;
          const double begin = std::max(held.lock_leave, done), end = std::min(leave, until);
          if (end <= begin || node < 0) return;
          done = end;
          analysis->at(own.location, node)[LOCK_CONTENTION] += end - begin;
          ranks[locations[own.location].decoder.in->rank].waits.push_back(
              {begin, end, (uint64_t)at, LOCK_CONTENTION, (uint64_t)held.unlock_at, false, node,
               own.location, held.unlock_node, held.location});
        };
        overlap(own.lock_leave, lock_to, own.lock_node, own.lock_at);
        overlap(own.unlock_leave, unlock_to, own.unlock_node, own.unlock_at);
      }
    }
  }
};
