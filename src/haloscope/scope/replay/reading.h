// First part of the wait-state replay: decodes events and keeps the records of calls.
#pragma once
#include <vector>

#include "records.h"

constexpr int kSizes = 66;

struct Reading {
  const RunInput *run;
  WaitAnalysis *analysis;
  int threads;
  bool keep_causes;
  int64_t kept = 0;  // words of a location that stay in memory
  double least = 0;  // of the waits that are kept, seconds
  std::vector<LocationState> locations;
  std::vector<RankState> ranks;
  std::vector<Communicator> comms;
  Peers peers;
  std::vector<int32_t> home;                           // process of a rank
  std::vector<int> owner;                              // thread of a rank, -1 in another process
  std::vector<std::vector<Outbox>> outboxes;           // [thread][process]
  std::vector<std::vector<std::vector<SendNote>>> mail;  // [from thread][to thread]
  std::vector<std::vector<std::vector<Arrival>>> arrivals;
  std::vector<std::vector<std::vector<Access>>> access_mail;
  std::vector<std::vector<int64_t>> sizes;             // by thread
  std::vector<Counts> counts;                          // by thread

  static double as_seconds(const LocationState &l, int64_t ticks) {
    return double(ticks) * l.decoder.in->rate + l.decoder.in->zero;
  }

  static int bucket(uint64_t bytes) {
    return bytes == 0 ? 0 : bytes == 1 ? 1 : 65 - __builtin_clzll(bytes - 1);
  }

  inline void charge(LocationState &l, int64_t now) {
    if (l.current >= 0 && now > l.last) l.nodes[l.current].ticks += now - l.last;
    l.last = now;
  }

  // The message that the open call sends. Written where it stays: copies of records cost much here.
  int64_t post(int thread, RankState &r, LocationState &l, int32_t index, uint32_t to, int32_t comm,
               uint32_t tag, uint64_t bytes, Family family) {
    const int64_t number = r.sends.end();
    Send &s = r.sends.add();
    s.enter = as_seconds(l, l.visit.enter);
    s.bytes = bytes;
    s.at = l.visit.at;
    s.node = l.current;
    s.location = index;
    s.receiver = (int32_t)to;
    s.comm = comm;
    s.tag = (int32_t)tag;
    s.family = family;
    if (__builtin_expect(!r.unsure_sends.empty(), 0)) s.unsure = r.unsure_sends.count((int64_t)comm << 32 | to);
    return send_note(thread, l, number, to);
  }

  int64_t send_note(int thread, LocationState &l, int64_t number, uint32_t to) {
    if (to >= (uint32_t)run->rank_count || ranks[to].locations.empty()) return number;
    const SendNote note{l.decoder.in->rank, (int32_t)to, number};
    if (owner[to] >= 0) mail[thread][owner[to]].push_back(note);
    else outboxes[thread][home[to]].sends.push_back(note);
    return number;
  }

  void cancel(int thread, RankState &r, int32_t rank, int64_t number) {
    Send &s = r.sends[number];
    s.cancelled = true;
    if (!missing(s.receiver) && owner[s.receiver] < 0)
      outboxes[thread][home[s.receiver]].cancels.push_back({rank, number});
  }

  // A message that the open call has received, posted there or with `request`.
  void await(RankState &r, LocationState &l, int32_t index, uint32_t from, int32_t comm, uint32_t tag,
             Family family, const Request *request = nullptr) {
    l.visit.receives.push_back(r.receives.end());
    Receive &m = r.receives.add();
    m.location = index;
    m.sender = (int32_t)from;
    m.comm = comm;
    m.tag = (int32_t)tag;
    m.family = family;
    m.node = l.current;
    if (__builtin_expect(!r.unsure_comms.empty(), 0)) m.unsure = r.unsure_comms.count(comm);
    if (request != nullptr && request->open) {
      m.posted = request->enter;
      m.posted_at = request->at;
      m.posted_node = request->node;
      m.posted_location = request->location;
      m.order = request->order;
    } else {
      m.posted = as_seconds(l, l.visit.enter);
      m.posted_at = l.visit.at;
      m.posted_node = l.current;
      m.posted_location = index;
      m.order = r.posted.push(1);
    }
  }

  // Messages or collectives that were not recorded, or a request that is over.
  void skip(int thread, int32_t index, LocationState &l, RankState &r, int64_t now) {
    Decoder &d = l.decoder;
    const uint64_t *w = d.words;
    const int64_t count = (int64_t)(w[1] & HS_SKIPPED_COUNT);
    const int32_t comm = d.comm((uint32_t)w[0]);
    const bool unsure = w[1] & HS_SKIPPED_UNSURE, sent = w[1] & HS_SKIPPED_SENT;
    const bool received = w[1] & HS_SKIPPED_RECEIVED, has_request = w[2] < HS_NOBODY;
    if (count > kMostSkipped) { counts[thread].unknown++; return; }
    Request q;
    if (has_request) {
      q = r.requests.at(w[2]);
      r.requests.close(w[2]);
      if (!q.open) return;
      if (q.send != kNone) {
        if (r.sends.holds(q.send)) r.sends[q.send].used = true;
        return;
      }
    }
    if (w[1] & HS_SKIPPED_EPOCH) {
      skip_epoch(thread, index, l, r, now, (int)count);
      return;
    }
    if (!sent && !received) {
      const int32_t place = d.place_in((uint32_t)w[0]);
      if (has_request || count == 0 || d.payload != HS_NOBODY) return;
      if (comm < 0 || place < 0) { counts[thread].unknown++; return; }
      if ((uint32_t)w[0] >= r.instances.size()) r.instances.resize((uint32_t)w[0] + 1, 0);
      int64_t &next = r.instances[(uint32_t)w[0]];
      if (next > kMostInstances) { counts[thread].unknown++; return; }
      const double at = as_seconds(l, now);
      arrivals[thread][comm % threads].push_back({comm, place, 0, index, -1, HS_NOBODY, next, at, at,
                                                  false, false, d.start, count});
      next += count;
      counts[thread].skipped_collectives += count;
      return;
    }
    if (unsure) {
      if (received) r.unsure_comms.insert(comm);
      if (sent) r.unsure_sends.insert((int64_t)comm << 32 | d.payload);
      if (q.open && r.posted.holds(q.order)) r.posted[q.order] = 0;
      return;
    }
    if (d.payload >= (uint32_t)run->rank_count || count == 0) {
      if (q.open && r.posted.holds(q.order)) r.posted[q.order] = 0;
      return;
    }
    const uint32_t tag = (uint32_t)(w[0] >> 32);
    if (sent) {
      skip_sends(thread, index, l, r, now, d.payload, comm, tag, count, MESSAGE);
      counts[thread].skipped_sends += count;
    } else {
      skip_receives(index, l, r, now, d.payload, comm, tag, count, MESSAGE, q.open ? q.order : r.posted.push(1));
      counts[thread].skipped_receives += count;
    }
  }

  void skip_sends(int thread, int32_t index, LocationState &l, RankState &r, int64_t now, uint32_t to,
                  int32_t comm, uint32_t tag, int64_t count, Family family) {
    const int64_t number = r.sends.end();
    Send &s = r.sends.add();
    s.enter = as_seconds(l, now);
    s.location = index;
    s.receiver = (int32_t)to;
    s.comm = comm;
    s.tag = (int32_t)tag;
    s.family = family;
    s.left = count;
    s.skipped = s.used = true;
    send_note(thread, l, number, to);
  }

  void skip_receives(int32_t index, LocationState &l, RankState &r, int64_t now, uint32_t from, int32_t comm,
                     uint32_t tag, int64_t count, Family family, int64_t order) {
    Receive &m = r.receives.add();
    m.location = m.posted_location = index;
    m.posted = m.enter = m.leave = as_seconds(l, now);
    m.sender = (int32_t)from;
    m.comm = comm;
    m.tag = (int32_t)tag;
    m.family = family;
    m.left = count;
    m.skipped = true;
    m.order = order;
  }

  // Its messages are those of one that was recorded.
  void skip_epoch(int thread, int32_t index, LocationState &l, RankState &r, int64_t now, int kind) {
    Decoder &d = l.decoder;
    const int32_t comm = d.window(d.payload);
    const uint32_t number = (uint32_t)d.window_number(d.payload);
    const uint64_t group = d.words[0];
    const bool begins = kind == HS_EVENT_POST || kind == HS_EVENT_START;
    if (comm < 0 || (begins && group >= (uint64_t)d.in->group_count)) { counts[thread].unknown++; return; }
    const bool exposes = kind == HS_EVENT_POST || kind == HS_EVENT_WAIT;
    std::vector<int32_t> &members = (exposes ? r.post_groups : r.start_groups)[(int32_t)d.payload];
    if (begins)
      members.assign(d.in->group_members + d.in->group_starts[group], d.in->group_members + d.in->group_starts[group + 1]);
    const auto sends = [&](int32_t to, Family family) {
      skip_sends(thread, index, l, r, now, (uint32_t)to, comm, number, 1, family);
    };
    const auto receives = [&](int32_t from, Family family) {
      skip_receives(index, l, r, now, (uint32_t)from, comm, number, 1, family, r.posted.push(1));
    };
    for (int32_t other : members) {
      if (kind == HS_EVENT_POST) sends(other, POST_START), sends(other, POST_COMPLETE);
      else if (kind == HS_EVENT_START) receives(other, POST_START);
      else if (kind == HS_EVENT_COMPLETE) sends(other, COMPLETE_WAIT), receives(other, POST_COMPLETE);
      else if (kind == HS_EVENT_WAIT) receives(other, COMPLETE_WAIT);
    }
  }

  // One event of a location, which its decoder has found.
  __attribute__((always_inline)) void take(int thread, int32_t index, LocationState &l, RankState &r) {
    Decoder &d = l.decoder;
    const int64_t now = d.now;
    if (__builtin_expect(!l.started, 0)) {
      l.started = true;
      l.first = l.last = now;
    }
    switch (d.kind) {
      case HS_EVENT_ENTER: {
        const int32_t node = d.node(d.payload);
        charge(l, now);
        if (__builtin_expect(l.depth == (int32_t)l.stack.size(), 0)) l.stack.resize(2 * l.depth);
        l.stack[l.depth++] = l.current;
        l.current = node;
        if (__builtin_expect(node < 0, 0)) { counts[thread].unknown++; break; }
        if (__builtin_expect(l.nodes[node].visits++ == 0, 0) && keep_causes)
          analysis->marks[index].active.push_back(node);
        const int32_t role = run->node_roles[node];
        if (role >= ROLE_MPI && role <= ROLE_RMA_SYNC && !l.visit.open) {
          Visit &v = l.visit;
          v.open = true;
          v.enter = now;
          v.at = d.start;
          v.receives.clear();
          v.dones.clear();
          v.accessed = -1;
          v.messages = v.filled = 0;
          v.collective = false;
          v.depth = l.depth;
          if (__builtin_expect(d.place >= l.next_mark, 0)) mark(index, l);
        }
        break;
      }
      case HS_EVENT_LEAVE: {
        charge(l, now);
        if (l.depth == 0) break;
        if (l.visit.open && l.visit.depth == l.depth) close_visit(thread, index, l, r, now);
        l.current = l.stack[--l.depth];
        // Waits are looked at from where MPI is entered: elsewhere only where that is far.
        if (__builtin_expect(d.place >= l.next_mark + Marks::kWords, 0)) mark(index, l);
        break;
      }
      default:
        other(thread, index, l, r, now);
    }
  }

  __attribute__((noinline)) void mark(int32_t index, LocationState &l) {
    Marks &m = analysis->marks[index];
    m.add(l.decoder.place, l.decoder.ticks, l.current, l.nodes.data());
    // As far apart as keeps them small beside the events.
    l.next_mark = l.decoder.place + std::max(Marks::kWords, 2 * (int64_t)m.active.size());
  }

  double *values_here(LocationState &l) {
    return l.current >= 0 ? l.values + l.current * (int64_t)SLOTS : nullptr;
  }

  void count_sent(int thread, LocationState &l, uint64_t bytes) {
    double *v = values_here(l);
    v[MESSAGES_SENT] += 1;
    v[EMPTY_SENT] += bytes == 0;
    v[BYTES_SENT] += double(bytes);
    sizes[thread][l.current * (int64_t)kSizes + bucket(bytes)]++;
    l.visit.messages++;
    l.visit.filled += bytes > 0;
  }

  void count_received(LocationState &l, uint64_t bytes) {
    double *v = values_here(l);
    v[MESSAGES_RECEIVED] += 1;
    v[EMPTY_RECEIVED] += bytes == 0;
    v[BYTES_RECEIVED] += double(bytes);
    l.visit.messages++;
    l.visit.filled += bytes > 0;
  }

  void count_received_of_any_size(LocationState &l) {
    values_here(l)[MESSAGES_RECEIVED] += 1;
    l.visit.messages++;
    l.visit.filled++;
  }

  void other(int thread, int32_t index, LocationState &l, RankState &r, int64_t now) {
    Decoder &d = l.decoder;
    if (d.kind == HS_EVENT_PAUSE) {
      charge(l, now);
      return;
    }
    if (d.kind == HS_EVENT_RESUME) {
      l.last = now;  // time in between belongs to nothing
      return;
    }
    if (d.kind == HS_EVENT_SKIPPED) {
      skip(thread, index, l, r, now);
      return;
    }
    if (d.kind == HS_EVENT_CANCELLED) {
      Request &q = r.requests.at(d.payload);
      if (q.open && q.send != kNone && r.sends.holds(q.send)) cancel(thread, r, l.decoder.in->rank, q.send);
      if (q.open && q.send == kNone && r.posted.holds(q.order)) r.posted[q.order] = 0;
      r.requests.close(d.payload);
      return;
    }
    if (l.current < 0 || !l.visit.open) return;  // what belongs to no call says nothing
    Visit &v = l.visit;
    const uint64_t *w = d.words;
    const bool is_message = d.kind == HS_EVENT_SEND || d.kind == HS_EVENT_ISEND ||
                            d.kind == HS_EVENT_RECV || d.kind == HS_EVENT_IRECV_DONE;
    if (is_message && d.payload == HS_NOBODY) return;
    switch (d.kind) {
      case HS_EVENT_SEND:
      case HS_EVENT_ISEND: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        count_sent(thread, l, bytes);
        const int64_t number = post(thread, r, l, index, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), bytes, MESSAGE);
        if (d.kind == HS_EVENT_SEND) {
          v.dones.push_back(number);
        } else {
          Request &q = r.requests.at(w[2]);
          q.open = true;
          q.send = number;
        }
        break;
      }
      case HS_EVENT_ISEND_DONE: {
        Request &q = r.requests.at(d.payload);
        if (q.open && q.send != kNone && r.sends.holds(q.send)) {
          v.messages++;
          v.filled += r.sends[q.send].bytes > 0;
          v.dones.push_back(q.send);
        }
        r.requests.close(d.payload);
        break;
      }
      case HS_EVENT_RECV: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        count_received(l, bytes);
        await(r, l, index, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), MESSAGE);
        break;
      }
      case HS_EVENT_IRECV: {
        Request &q = r.requests.at(d.payload);
        q.open = true;
        q.send = kNone;
        q.enter = as_seconds(l, v.enter);
        q.node = l.current;
        q.at = v.at;
        q.location = index;
        q.order = r.posted.push(1);
        break;
      }
      case HS_EVENT_IRECV_DONE: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        const bool is_unknown = bytes == HS_BYTES_UNKNOWN;  // that of the send counts
        if (is_unknown) count_received_of_any_size(l);
        else count_received(l, bytes);
        await(r, l, index, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), MESSAGE, &r.requests.at(w[2]));
        r.receives[r.receives.end() - 1].size_unknown = is_unknown;
        r.requests.close(w[2]);
        break;
      }
      case HS_EVENT_COLLECTIVE: {
        Collective &c = v.call;
        v.collective = false;
        c.comm = d.comm(d.payload);
        c.place = d.place_in(d.payload);
        c.operation = (int32_t)(w[0] & 0xffffffff);
        c.root = (int32_t)(w[0] >> 32);
        c.sent = w[1];
        c.received = w[2];
        if (d.payload >= r.instances.size()) {
          if (c.comm < 0) { counts[thread].unknown++; break; }
          r.instances.resize(d.payload + 1, 0);
        }
        c.instance = r.instances[d.payload]++;
        v.collective = c.comm >= 0 && c.place >= 0;  // between two groups there is no pattern
        break;
      }
      case HS_EVENT_ICOLLECTIVE: {
        if (d.comm(d.payload) < 0) { counts[thread].unknown++; break; }
        if (d.payload >= r.instances.size()) r.instances.resize(d.payload + 1, 0);
        r.instances[d.payload]++;
        double *values = values_here(l);
        values[COLLECTIVES] += 1;
        values[BYTES_COLLECTIVE] += double(w[1]) + double(w[2]);
        // An operation that every member starts but none waits in keeps its number.
        if (d.place_in(d.payload) >= 0)
          skip_instance(thread, d.comm(d.payload), d.place_in(d.payload), r.instances[d.payload] - 1,
                        index, as_seconds(l, v.enter), v.at);
        break;
      }
      case HS_EVENT_PUT:
      case HS_EVENT_GET: {
        values_here(l)[BYTES_RMA] += double(w[1]);
        const int32_t comm = d.window((uint32_t)w[0]);
        v.accessed_window = (int32_t)w[0];
        v.accessed = comm >= 0 ? (int64_t)comm << 32 | d.payload : -1;
        break;
      }
      case HS_EVENT_POST:
      case HS_EVENT_START: {
        const int32_t comm = d.window(d.payload);
        if (comm < 0 || w[0] >= (uint64_t)d.in->group_count) { counts[thread].unknown++; break; }
        const uint32_t number = (uint32_t)d.window_number(d.payload);  // in place of a tag
        std::vector<int32_t> group(d.in->group_members + d.in->group_starts[w[0]],
                                   d.in->group_members + d.in->group_starts[w[0] + 1]);
        for (int32_t other : group) {
          if (d.kind == HS_EVENT_POST) {
            post(thread, r, l, index, (uint32_t)other, comm, number, 1, POST_START);
            post(thread, r, l, index, (uint32_t)other, comm, number, 1, POST_COMPLETE);
          } else {
            await(r, l, index, (uint32_t)other, comm, number, POST_START);
          }
        }
        (d.kind == HS_EVENT_POST ? r.post_groups : r.start_groups)[(int32_t)d.payload] = group;
        v.messages += d.kind == HS_EVENT_START;
        v.filled += d.kind == HS_EVENT_START;
        break;
      }
      case HS_EVENT_COMPLETE:
      case HS_EVENT_WAIT: {
        const int32_t comm = d.window(d.payload);
        if (comm < 0) { counts[thread].unknown++; break; }
        const bool complete = d.kind == HS_EVENT_COMPLETE;
        const uint32_t number = (uint32_t)d.window_number(d.payload);
        for (int32_t other : (complete ? r.start_groups : r.post_groups)[(int32_t)d.payload]) {
          if (complete) {
            Send &s = r.sends[post(thread, r, l, index, (uint32_t)other, comm, number, 1, COMPLETE_WAIT)];
            const auto last = r.last_access.find((int32_t)d.payload);
            s.last_access = last == r.last_access.end() ? s.enter : last->second;
            await(r, l, index, (uint32_t)other, comm, number, POST_COMPLETE);
          } else {
            await(r, l, index, (uint32_t)other, comm, number, COMPLETE_WAIT);
          }
        }
        v.messages++;
        v.filled++;
        break;
      }
      case HS_EVENT_LOCK: {
        Lock k{};
        k.window = d.window_number(d.payload);
        k.target = (int32_t)(uint32_t)w[0];
        k.exclusive = w[0] >> 32;
        k.location = index;
        k.lock_node = l.current;
        k.lock_at = v.at;
        k.lock_enter = as_seconds(l, v.enter);
        k.lock_leave = as_seconds(l, now);
        r.open_locks.push_back(k);
        break;
      }
      case HS_EVENT_UNLOCK: {
        const int32_t window = d.window_number(d.payload);
        for (size_t i = 0; i < r.open_locks.size(); i++) {
          if (r.open_locks[i].window != window || r.open_locks[i].target != (int32_t)(uint32_t)w[0]) continue;
          Lock k = r.open_locks[i];
          k.unlock_node = l.current;
          k.unlock_at = v.at;
          k.unlock_enter = as_seconds(l, v.enter);
          k.unlock_leave = as_seconds(l, now);
          r.locks.push_back(k);
          r.open_locks.erase(r.open_locks.begin() + i);
          break;
        }
        break;
      }
      default: break;
    }
  }

  void skip_instance(int thread, int32_t comm, int32_t place, int64_t instance, int32_t location,
                     double enter, int64_t at) {
    arrivals[thread][comm % threads].push_back({comm, place, HS_OP_NEIGHBOUR, location, -1, HS_NOBODY,
                                                instance, enter, enter, false, false, at});
    Collective c{};
    c.enter = c.leave = enter;
    c.instance = instance;
    c.comm = comm;
    c.place = place;
    c.operation = HS_OP_NEIGHBOUR;
    c.root = -1;
    c.node = -1;
    c.location = location;
    ranks[locations[location].decoder.in->rank].collectives.push(c);
  }

  void close_visit(int thread, int32_t index, LocationState &l, RankState &r, int64_t now) {
    Visit &v = l.visit;
    v.open = false;
    const double enter = as_seconds(l, v.enter), leave = as_seconds(l, now);
    if (v.accessed >= 0) r.accesses[v.accessed] = r.last_access[v.accessed_window] = leave;
    const int32_t receives = (int32_t)v.receives.size(), dones = (int32_t)v.dones.size();
    if (receives || dones) {
      const int32_t role = l.current >= 0 ? run->node_roles[l.current] : 0;
      const bool empty = v.messages > 0 && v.filled == 0;
      r.calls.push({enter, leave, v.at, r.taken.end(), r.dones.end(), receives, dones, l.current,
                    index, role == ROLE_TEST, empty});
      for (int64_t number : v.receives) {
        Receive &m = r.receives[number];
        m.enter = enter;
        m.leave = leave;
        m.together = receives;
        r.taken.push(number);
      }
      for (int64_t number : v.dones) r.dones.push(number);
    }
    if (v.messages > 0 && v.filled == 0 && l.current >= 0)
      l.values[l.current * (int64_t)SLOTS + P2P_SYNCHRONISATION] += leave - enter;
    if (v.collective && l.current >= 0) {
      Collective &c = v.call;
      c.enter = enter;
      c.leave = leave;
      c.at = v.at;
      c.node = l.current;
      c.location = index;
      double *values = l.values + l.current * (int64_t)SLOTS;
      values[COLLECTIVES] += 1;
      values[BYTES_COLLECTIVE] += double(c.sent) + double(c.received);
      const bool payload = c.sent + c.received > 0;
      const bool root = (uint32_t)c.root == (uint32_t)l.decoder.in->rank;
      bool contributes = c.sent > 0;
      if (c.operation == HS_OP_REDUCE || c.operation == HS_OP_GATHER || c.operation == HS_OP_GATHERV)
        contributes = contributes && !root;
      if (c.operation == HS_OP_FINALIZE) analysis->finalised[index] = enter;
      r.collectives.push(c);
      arrivals[thread][c.comm % threads].push_back({c.comm, c.place, c.operation, index, c.node,
                                                    (uint32_t)c.root, c.instance, enter, leave,
                                                    contributes, payload, v.at});
      if (c.operation == HS_OP_FENCE) {
        for (auto it = r.accesses.begin(); it != r.accesses.end();) {
          if ((int32_t)(it->first >> 32) == c.comm) {
            access_mail[thread][c.comm % threads].push_back({c.comm, (int32_t)(uint32_t)it->first, c.instance, it->second});
            it = r.accesses.erase(it);
          } else {
            ++it;
          }
        }
      }
    }
  }

  // Decode a rank's events until a time; false when all of them are through.
  bool decode(int thread, int32_t rank, double until, int64_t most) {
    RankState &r = ranks[rank];
    int64_t count = 0;
    bool more = false;
    if (r.locations.size() == 1) {
      const int32_t index = r.locations[0];
      LocationState &l = locations[index];
      if (l.ended) return false;
      const double edge = (until - l.decoder.in->zero) / l.decoder.in->rate;
      for (;;) {
        if (!l.decoder.next()) { end(thread, index, l, r); break; }
        take(thread, index, l, r);
        count++;
        if ((double(l.decoder.now) >= edge || count >= most) && !l.visit.open) { more = true; break; }
      }
    } else {
      for (;;) {  // threads of one rank share requests and order: the earliest event comes first
        int32_t first = -1;
        for (int32_t index : r.locations) {
          LocationState &l = locations[index];
          if (l.ended) continue;
          if (!l.looked) {
            if (!l.decoder.next()) { end(thread, index, l, r); continue; }
            l.looked = true;
          }
          if (first < 0 || l.decoder.seconds() < locations[first].decoder.seconds()) first = index;
        }
        if (first < 0) break;
        LocationState &l = locations[first];
        if (l.decoder.seconds() >= until) {
          bool open = false;
          for (int32_t index : r.locations) open |= locations[index].visit.open && !locations[index].ended;
          if (!open) { more = true; break; }
        }
        take(thread, first, l, r);
        l.looked = false;
        count++;
      }
    }
    counts[thread].events += count;
    return more;
  }

  void end(int thread, int32_t index, LocationState &l, RankState &r) {
    l.ended = true;
    counts[thread].broken += l.decoder.broken;
    analysis->open[index] = l.depth;
    if (l.visit.open) close_visit(thread, index, l, r, l.last);
  }

  bool missing(int32_t rank) const {
    return (uint32_t)rank >= (uint32_t)run->rank_count || ranks[rank].locations.empty();
  }
};
