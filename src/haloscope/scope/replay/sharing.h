// Fourth part: messages between processes that replay a run together. Each decodes the files of its
// own ranks; messages are matched where they are received, members of collectives everywhere.
#pragma once
#include "matching.h"

struct Sharing : Settling {
  bool shared() const { return peers.count > 1; }
  bool own(int32_t rank) const { return home[rank] == peers.own; }

  // After a stretch has been decoded: sends the other processes the records that they match.
  // Returns the events that all processes have gone through, and in `alive` whether any has more.
  int64_t exchange_decoded(bool &alive) {
    int64_t total = 0;
    for (int t = 0; t < threads; t++) total += counts[t].events;
    if (!shared()) return total;
    std::vector<Arrival> members;
    std::vector<Access> accesses;
    for (int from = 0; from < threads; from++) collect(arrivals, from, members), collect(access_mail, from, accesses);
    std::vector<Parcel> parcels(peers.count);
    for (int32_t p = 0; p < peers.count; p++) {
      std::vector<ForeignSend> sends;
      std::vector<ForeignCancel> cancels;
      for (int from = 0; from < threads; from++) {
        Outbox &box = outboxes[from][p];
        for (const SendNote &note : box.sends) sends.push_back({note, ranks[note.sender].sends[note.number]});
        cancels.insert(cancels.end(), box.cancels.begin(), box.cancels.end());
        box.sends.clear();
        box.cancels.clear();
      }
      parcels[p].put(total);
      parcels[p].put(alive);
      parcels[p].put(sends);
      parcels[p].put(cancels);
      parcels[p].put(members);
      parcels[p].put(accesses);
    }
    total = 0;
    for (const Parcel &parcel : ::exchange(peers, parcels)) {
      ParcelReader reader(parcel.bytes.data(), (int64_t)parcel.bytes.size());
      total += reader.one<int64_t>();
      alive |= reader.one<bool>();
      for (const ForeignSend &one : reader.list<ForeignSend>()) take_in(one);
      for (const ForeignCancel &one : reader.list<ForeignCancel>()) cancel_foreign(one);
      for (const Arrival &one : reader.list<Arrival>()) arrivals[0][one.comm % threads].push_back(one);
      for (const Access &one : reader.list<Access>()) access_mail[0][one.comm % threads].push_back(one);
    }
    return total;
  }

  // After messages have been matched: sends the matches to the senders' processes.
  void exchange_matches() {
    if (!shared()) return;
    std::vector<Parcel> parcels(peers.count);
    for (int32_t p = 0; p < peers.count; p++) {
      std::vector<ForeignMatch> matches;
      for (int from = 0; from < threads; from++) {
        auto &list = outboxes[from][p].matches;
        matches.insert(matches.end(), list.begin(), list.end());
        list.clear();
      }
      parcels[p].put(matches);
    }
    for (const Parcel &parcel : ::exchange(peers, parcels)) {
      ParcelReader reader(parcel.bytes.data(), (int64_t)parcel.bytes.size());
      for (const ForeignMatch &one : reader.list<ForeignMatch>()) {
        Send &s = ranks[one.sender].sends[one.number];
        s.matched = true;
        s.receive_enter = one.receive_enter;
        s.receive_location = one.receive_location;
        s.receive_node = one.receive_node;
        s.receive_at = one.receive_at;
      }
    }
  }

  void drop_foreign() {
    for (int32_t rank = 0; shared() && rank < run->rank_count; rank++) {
      if (own(rank)) continue;
      RankState &r = ranks[rank];
      int64_t &head = r.sends.head;
      while (head < r.sends.end() && (r.sends[head].matched || (r.sends[head].cancelled && !r.sends[head].queued))) head++;
      r.sends.drop_before(head);
      r.origins.drop_before(head);
    }
  }

  // Sends the records of this process's own ranks to the first process, which goes on alone.
  void hand_in() {
    if (!shared()) return;
    Parcel parcel;
    parcel.put(counts);
    for (const auto &list : sizes) parcel.put(list);
    for (int32_t rank = 0; rank < run->rank_count && peers.own != 0; rank++) {
      RankState &r = ranks[rank];
      if (!own(rank)) continue;
      parcel.put(r.locks);
      parcel.put(r.pairs.list);
      parcel.put(r.waits);
      std::vector<Wait>().swap(r.waits);
      for (int32_t location : r.locations) put_location(parcel, location);
    }
    const std::vector<Parcel> came = gather(peers, parcel);
    for (int32_t p = 1; peers.own == 0 && p < peers.count; p++) {
      ParcelReader reader(came[p].bytes.data(), (int64_t)came[p].bytes.size());
      for (const Counts &more : reader.list<Counts>()) counts[0].add(more);
      for (auto &list : sizes) {
        const auto more = reader.list<int64_t>();
        for (size_t i = 0; i < list.size(); i++) list[i] += more[i];
      }
      for (int32_t rank = 0; rank < run->rank_count; rank++) {
        if (home[rank] != p) continue;
        RankState &r = ranks[rank];
        r.locks = reader.list<Lock>();
        r.pairs.list = reader.list<Pair>();
        r.waits = reader.list<Wait>();
        for (int32_t location : r.locations) take_location(reader, location);
      }
    }
  }

 private:
  template <class T>
  void collect(std::vector<std::vector<std::vector<T>>> &boxes, int from, std::vector<T> &into) {
    for (auto &box : boxes[from]) {
      into.insert(into.end(), box.begin(), box.end());
      box.clear();
    }
  }

  void take_in(const ForeignSend &one) {
    RankState &source = ranks[one.note.sender];
    const int64_t number = source.sends.push(one.send);
    source.origins.push(one.note.number);
    mail[0][owner[one.note.receiver]].push_back({one.note.sender, one.note.receiver, number});
  }

  // Numbers of a sender's messages grow: those that came here, too.
  void cancel_foreign(const ForeignCancel &one) {
    RankState &source = ranks[one.sender];
    const auto &numbers = source.origins.items;
    const auto place = std::lower_bound(numbers.begin(), numbers.end(), one.number);
    if (place != numbers.end() && *place == one.number)
      source.sends.items[place - numbers.begin()].cancelled = true;
  }

  struct Ends {
    double begin, end, finalised;
    int64_t open;
  };

  void put_location(Parcel &parcel, int32_t location) {
    parcel.put(Ends{analysis->begins[location], analysis->ends[location], analysis->finalised[location],
                    analysis->open[location]});
    std::vector<int64_t> nodes;
    std::vector<double> rows;
    for (int64_t node = 0; node < analysis->nodes; node++) {
      const double *row = analysis->at(location, node);
      if (std::all_of(row, row + SLOTS, [](double value) { return value == 0; })) continue;
      nodes.push_back(node);
      rows.insert(rows.end(), row, row + SLOTS);
    }
    parcel.put(nodes);
    parcel.put(rows);
    const Marks &m = analysis->marks[location];
    parcel.put(m.active);
    parcel.put(m.list);
    parcel.put(m.sums);
    parcel.put(m.before);
  }

  void take_location(ParcelReader &reader, int32_t location) {
    const Ends ends = reader.one<Ends>();
    analysis->begins[location] = ends.begin;
    analysis->ends[location] = ends.end;
    analysis->finalised[location] = ends.finalised;
    analysis->open[location] = ends.open;
    const auto nodes = reader.list<int64_t>();
    const auto rows = reader.list<double>();
    for (size_t i = 0; i < nodes.size(); i++)
      std::copy(rows.begin() + i * SLOTS, rows.begin() + (i + 1) * SLOTS, analysis->at(location, nodes[i]));
    Marks &m = analysis->marks[location];
    m.active = reader.list<int32_t>();
    m.list = reader.list<Mark>();
    m.sums = reader.list<int64_t>();
    m.before = reader.list<uint32_t>();
  }
};
