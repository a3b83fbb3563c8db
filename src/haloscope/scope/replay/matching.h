// Second part: brings messages and their receives together, and the members of collectives.
#pragma once
#include "reading.h"

constexpr size_t kMostHeld = 65536;  // receives of a rank that wait for ones posted before them
constexpr double kEver = 1e300;

struct Matching : Reading {
  // Pairs messages of the send that has this number here with a receive: one, where either was
  // recorded. A side that was not recorded does not name its partner.
  void pair_up(int thread, RankState &to, int32_t receiver, int64_t number, Send &s, Receive &m) {
    const int64_t count = s.skipped && m.skipped ? std::min(s.left, m.left) : 1;
    s.left -= count;
    m.left -= count;
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
      Channel &c = r.channels.get(m.sender, m.comm, m.tag, m.family);
      RankState &source = ranks[m.sender];
      while (c.first_receive == kNone && m.left > 0) {
        while (c.first_send != kNone && source.sends[c.first_send].cancelled) {
          source.sends[c.first_send].queued = false;
          c.first_send = source.sends[c.first_send].next;
        }
        if (c.first_send == kNone) break;
        const int64_t sent = c.first_send;
        Send &s = source.sends[sent];
        pair_up(thread, r, rank, sent, s, m);
        if (s.left == 0) c.first_send = s.next;
      }
      if (m.left > 0) {
        m.next = kNone;
        if (c.first_receive == kNone) c.first_receive = number;
        else r.receives[c.last_receive].next = number;
        c.last_receive = number;
      }
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
        Channel &c = target.channels.get(note.sender, s.comm, s.tag, s.family);
        // Receives may already wait for it.
        while (c.first_receive != kNone && s.left > 0) {
          Receive &m = target.receives[c.first_receive];
          pair_up(thread, target, note.receiver, note.number, s, m);
          if (m.left == 0) c.first_receive = m.next;
        }
        if (s.left > 0) {
          s.next = kNone;
          s.queued = true;
          if (c.first_send == kNone) c.first_send = note.number;
          else source.sends[c.last_send].next = note.number;
          c.last_send = note.number;
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
    const int counts = peers.own == 0;  // all processes are told of all arrivals
    if (a.place < 0 || a.place >= c.size || a.instance < c.base) { unknown[thread] += counts; return; }
    if (a.skipped > 0) {
      skip_instances(a);
      return;
    }
    if (!c.reached.empty()) c.reached[a.place] = a.instance + 1;
    Instance &i = *instance_of(a.comm, a.instance);
    if (i.locations[a.place] >= 0) { unknown[thread] += counts; return; }
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
