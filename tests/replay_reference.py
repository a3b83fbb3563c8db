"""Finds the wait states of a small trace the plain way, to hold the replay against.

Everything is in memory, matched first and judged afterwards, with the formulas of the metrics'
declarations; nothing of it is shared with the replay. Random programs to try it on are here too.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from trace_text import ROOT, Event, Place, Trace

from haloscope.scope.trace.trace import Operation

Table = dict[tuple[Place, str], float]
_ALL_TO_ALL = {"allreduce", "allgather", "allgatherv", "alltoall", "reduce_scatter"}
_FROM_ROOT = {"broadcast", "scatter", "scatterv"}
_TO_ROOT = {"reduce", "gather", "gatherv"}
_OPERATIONS = {operation.name.lower() for operation in Operation}


@dataclass
class Call:
    """One visit of an MPI function."""

    place: Place
    path: str
    name: str
    enter: float
    leave: float = 0.0
    sends: list[Message] = field(default_factory=list)  # that this call completes
    receives: list[Message] = field(default_factory=list)
    empty: int = 0
    filled: int = 0
    collective: Event | None = None


@dataclass
class Message:
    """A message as one of its sides sees it: where it was begun and where it was completed."""

    key: tuple[int, int, str, str]  # sender, receiver, communicator, tag
    size: int
    begun: Call
    order: tuple[float, int, int]
    done: Call | None = None
    other: Message | None = None


class Reference:
    """What a trace holds, by metric."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.values: dict[str, Table] = defaultdict(lambda: defaultdict(float))
        self.pairs: dict[tuple[int, int, str], list[float]] = defaultdict(lambda: [0.0] * 5)
        self.calls: dict[Place, list[Call]] = defaultdict(list)
        self.sends: list[Message] = []
        self.receives: list[Message] = []
        for rank in range(trace.size):
            self._collect(rank)
        self._match()
        for place, calls in self.calls.items():
            self._messages(place, calls)
        self._collectives()

    def _add(self, metric: str, call: Call, value: float) -> None:
        if value:
            self.values[metric][call.place, call.path] += value

    def _collect(self, rank: int) -> None:
        """Calls and messages of a rank, its threads side by side."""
        merged = sorted(
            (event.second, place[1], number, place, event)
            for place, events in self.trace.events.items()
            if place[0] == rank
            for number, event in enumerate(events)
        )
        stacks: dict[Place, list[Call]] = defaultdict(list)
        requests: dict[str, tuple[str, Call, Message | None, tuple[float, int, int]]] = {}
        for second, location, number, place, event in merged:
            stack = stacks[place]
            order = (second, location, number)
            verb, options = event.verb, event.options
            if verb == "enter":
                above = stack[-1].path if stack else ""
                name = event.words[0]
                path = "." if not stack else name if above == "." else f"{above}/{name}"
                stack.append(Call(place, path, name, second))
                continue
            call = stack[-1]
            if verb == "leave":
                call.leave = second
                self.calls[place].append(stack.pop())
            elif verb in ("send", "isend", "recv"):
                peer = int(event.words[0])
                ends = (peer, rank) if verb == "recv" else (rank, peer)
                key = (*ends, options.get("comm", "world"), options.get("tag", "0"))
                message = Message(key, int(options["bytes"]), call, order)
                (self.receives if verb == "recv" else self.sends).append(message)
                self._complete(message, call, verb == "recv", verb != "isend")
                if verb == "isend":
                    requests[options["request"]] = "send", call, message, order
            elif verb == "irecv":
                requests[options["request"]] = "receive", call, None, order
            elif verb == "done":
                kind, begun, known, posted = requests.pop(event.words[0])
                if kind == "receive":
                    tag = options.get("tag", "0")
                    key = (int(event.words[1]), rank, options.get("comm", "world"), tag)
                    known = Message(key, int(options["bytes"]), begun, posted)
                    self.receives.append(known)
                if known is not None:
                    self._complete(known, call, kind == "receive", True)
            elif verb in _OPERATIONS and "request" not in options:
                call.collective = event
            elif verb in _OPERATIONS:
                requests[options["request"]] = "collective", call, None, order

    def _complete(self, message: Message, call: Call, is_receive: bool, is_done: bool) -> None:
        """Note in a call what it begins or completes."""
        call.empty += message.size == 0
        call.filled += message.size > 0
        if is_done:
            message.done = call
            (call.receives if is_receive else call.sends).append(message)

    def _match(self) -> None:
        """Messages and receives of a channel belong together in the order in which they began."""
        waiting: dict[tuple[int, int, str, str], list[Message]] = defaultdict(list)
        for message in sorted(self.sends, key=lambda message: message.order):
            waiting[message.key].append(message)
        for receive in sorted(self.receives, key=lambda message: message.order):
            if waiting[receive.key]:
                send = waiting[receive.key].pop(0)
                send.other, receive.other = receive, send

    def _messages(self, place: Place, calls: list[Call]) -> None:
        late: list[tuple[Call, Message, float]] = []  # waits that may turn out to be out of order
        for call in calls:
            for receive in call.receives:
                self._pair(receive, call)
            if call.empty and not call.filled:
                self._add("p2p_synchronisation", call, call.leave - call.enter)
            earlier = [
                entry
                for entry in late
                if any(
                    receive.other and receive.other.begun.enter < entry[1].begun.enter
                    for receive in call.receives
                )
            ]
            for entry in earlier:
                first = next(
                    receive.other
                    for receive in call.receives
                    if receive.other and receive.other.begun.enter < entry[1].begun.enter
                )
                same = first.key[0] == entry[1].key[0]
                name = "same_source" if same else "different_sources"
                self._add(f"wrong_order_{name}", entry[0], entry[2])
                self._add("late_sender_wrong_order", entry[0], entry[2])
                late.remove(entry)
            if not call.filled or call.name.startswith("MPI_Test"):
                continue
            sender, longest = 0.0, None
            for receive in call.receives:
                if receive.other:
                    wait = min(receive.other.begun.enter, call.leave) - call.enter
                    if wait > sender:
                        sender, longest = wait, receive.other
            receiver = 0.0
            for send in call.sends:
                if send.other and send.other.begun.enter < call.leave:
                    receiver = max(receiver, send.other.begun.enter - call.enter)
            if longest is not None and sender >= receiver:
                self._add("late_sender", call, sender)
                late.append((call, longest, sender))
            elif receiver > 0:
                self._add("late_receiver", call, receiver)

    def _pair(self, receive: Message, call: Call) -> None:
        send = receive.other
        if send is None:
            return
        row = self.pairs[send.key[0], send.key[1], send.begun.path]
        row[0] += 1
        row[1] += send.size == 0
        row[2] += send.size
        row[3] += max(0.0, call.leave - max(send.begun.enter, call.enter))
        row[4] += call.leave - call.enter

    def _collectives(self) -> None:
        """The n-th operation of a communicator on each of its members."""
        count: dict[tuple[int, str], int] = defaultdict(int)
        groups: dict[tuple[str, int], dict[int, tuple[Call, Event]]] = defaultdict(dict)
        for rank in range(self.trace.size):
            merged = sorted(
                (event.second, place[1], number, place, event)
                for place, events in self.trace.events.items()
                if place[0] == rank
                for number, event in enumerate(events)
            )
            calls = {
                id(call.collective): call
                for place, listed in self.calls.items()
                if place[0] == rank
                for call in listed
                if call.collective
            }
            for *_, event in merged:
                if event.verb not in _OPERATIONS:
                    continue
                name = event.options.get("comm", "world")
                number = count[rank, name]
                count[rank, name] += 1
                if id(event) in calls:
                    groups[name, number][rank] = calls[id(event)], event
        for (name, _), group in groups.items():
            members = self.trace.comms[name]
            if len(members) > 1 and len(group) == len(members):
                self._judge([group[member] for member in members], members)

    def _judge(self, group: list[tuple[Call, Event]], members: tuple[int, ...]) -> None:
        """One collective operation; `group` in the order of the communicator's ranks."""
        operation = group[0][1].verb
        sent = [int(event.options.get("sent", 0)) for _, event in group]
        got = [int(event.options.get("received", 0)) for _, event in group]
        calls = [call for call, _ in group]
        first_left = min(call.leave for call in calls)
        last = max(call.enter for call in calls)
        if operation == "barrier":
            for call in calls:
                self._all(call, last, first_left, "wait_at_barrier", "barrier_completion")
        elif operation == "init":
            for call in calls:
                self._all(call, last, first_left, "", "init_completion")
        elif operation == "finalize":
            for call in calls:
                self._all(call, last, first_left, "wait_at_finalize", "")
        elif operation in _ALL_TO_ALL:
            last = max((c.enter for c, size in zip(calls, sent, strict=True) if size), default=-1e9)
            for call, gives, gets in zip(calls, sent, got, strict=True):
                if gives or gets:
                    self._all(call, last, first_left, "wait_at_nxn", "nxn_completion")
        elif operation in _FROM_ROOT:
            root = members.index(int(group[0][1].options["root"]))
            for number, call in enumerate(calls):
                if number != root and got[number]:
                    wait = min(calls[root].enter, call.leave) - call.enter
                    self._add("late_broadcast", call, max(0.0, wait))
        elif operation in _TO_ROOT:
            root = members.index(int(group[0][1].options["root"]))
            senders = [c.enter for n, c in enumerate(calls) if n != root and sent[n]]
            if senders and got[root]:
                wait = min(max(senders), calls[root].leave) - calls[root].enter
                self._add("early_reduce", calls[root], max(0.0, wait))
        elif operation in ("scan", "exscan"):
            for number, call in enumerate(calls):
                lower = [c.enter for n, c in enumerate(calls[:number]) if sent[n]]
                if sent[number] or got[number]:
                    since = min(call.leave, max([call.enter, *lower]))
                    self._add("early_scan", call, since - call.enter)
                    self._add("scan_completion", call, call.leave - since)

    def _all(self, call: Call, last: float, first_left: float, wait: str, completion: str) -> None:
        if wait:
            self._add(wait, call, max(0.0, min(last, call.leave) - call.enter))
        if completion:
            since = max(first_left, min(last, call.leave), call.enter)
            self._add(completion, call, call.leave - since)


class _Program:
    """Makes up a program: what each rank does in what order, and when."""

    def __init__(self, seed: int, ranks: int, steps: int, singly: bool, threads: int) -> None:
        self.choice = random.Random(seed)
        self.ranks, self.steps, self.singly, self.threads = ranks, steps, singly, threads
        self.comms = {"world": tuple(range(ranks))}
        for name in ("few", "turned"):
            members = self.choice.sample(range(ranks), self.choice.randint(1, ranks))
            self.comms[name] = tuple(members)
        self.now: dict[Place, float] = defaultdict(float)
        self.events: dict[Place, list[Event]] = defaultdict(list)
        # Requests under way: name, peer of a receive, its channel, since when.
        self.pending: list[list[tuple[str, str, dict[str, str], float]]] = [
            [] for _ in range(ranks)
        ]
        self.requests = 0

    def call(
        self,
        rank: int,
        name: str,
        first: list[Event],
        later: list[Event],
        since: float = 0.0,
        thread: int | None = None,
    ) -> Place:
        """A call of one of the rank's threads, which does not begin before `since`."""
        choice = self.choice
        place = rank, choice.randrange(self.threads) if thread is None else thread
        if since and self.threads > 1:
            since += 1e-6  # after, whichever thread began it
        begin = (
            max(self.now[place], since)
            + choice.choice((0, 1, 3, 10)) * choice.randint(1, 1000) * 1e-6
        )
        end = begin + choice.choice((0, 1, 1, 5, 20)) * choice.randint(1, 1000) * 1e-6
        begin, end = round(begin, 6), round(end, 6)
        where = self.events[place]
        where.append(Event(begin, "enter", (name,)))
        where += [Event(begin, e.verb, e.words, e.options) for e in first]
        where += [Event(end, e.verb, e.words, e.options) for e in later]
        where.append(Event(end, "leave", (name,)))
        self.now[place] = end
        return place

    def message(self) -> None:
        choice = self.choice
        name = choice.choice([name for name in self.comms if len(self.comms[name]) > 1])
        sender, receiver = choice.sample(self.comms[name], 2)
        options = {
            "comm": name,
            "tag": str(choice.randrange(2)),
            "bytes": str(choice.choice((0, 0, 1, 8, 1000, 70000))),
        }
        if choice.random() < 0.5:
            call = choice.choice(("MPI_Send", "MPI_Ssend"))
            self.call(sender, call, [Event(0, "send", (str(receiver),), options)], [])
        else:
            request = self.request()
            begun = Event(0, "isend", (str(receiver),), {**options, "request": request})
            since = self.now[self.call(sender, "MPI_Isend", [begun], [])]
            self.pending[sender].append((request, "", {}, since))
        if choice.random() < 0.5:
            # No receive of this channel may still be under way: a blocking one would overtake it.
            channel = (str(sender), options["comm"], options["tag"])
            while any(
                (peer, more.get("comm"), more.get("tag")) == channel
                for _, peer, more, _ in self.pending[receiver]
            ):
                self.wait(receiver)
            self.call(receiver, "MPI_Recv", [], [Event(0, "recv", (str(sender),), options)])
        else:
            request = self.request()
            begun = Event(0, "irecv", (), {"request": request})
            since = self.now[self.call(receiver, "MPI_Irecv", [begun], [])]
            self.pending[receiver].append((request, str(sender), options, since))

    def exchange(self) -> None:
        name = self.choice.choice([name for name in self.comms if len(self.comms[name]) > 1])
        one, other = self.choice.sample(self.comms[name], 2)
        sizes = [str(self.choice.choice((0, 0, 8))) for _ in range(2)]
        for rank, peer, mine, others in ((one, other, 0, 1), (other, one, 1, 0)):
            channel = {"comm": name, "tag": "9"}
            self.call(
                rank,
                "MPI_Sendrecv",
                [Event(0, "send", (str(peer),), {**channel, "bytes": sizes[mine]})],
                [Event(0, "recv", (str(peer),), {**channel, "bytes": sizes[others]})],
            )

    def request(self) -> str:
        self.requests += 1
        return f"r{self.requests}"

    def wait(self, rank: int) -> None:
        """Complete one or several requests of a rank, not always in the order of their begin."""
        pending = self.pending[rank]
        if not pending:
            return
        count = 1 if self.singly else self.choice.randint(1, len(pending))
        done, latest = [], 0.0
        for _ in range(count):
            request, peer, options, since = pending.pop(self.choice.randrange(len(pending)))
            latest = max(latest, since)
            words = (request, peer) if peer else (request,)
            done.append(Event(0, "done", words, options))
        names = ("MPI_Wait", "MPI_Test") if count == 1 else ("MPI_Waitall", "MPI_Testsome")
        self.call(rank, self.choice.choices(names, (4, 1))[0], [], done, latest)

    def collective(self) -> None:
        choice = self.choice
        name = choice.choice(list(self.comms))
        members = self.comms[name]
        operation = choice.choice(
            ["barrier", "broadcast", "scatterv", "reduce", "gatherv", "allreduce", "allgatherv"]
            + ["scan", "exscan", "neighbour", "create"]
        )
        root = choice.choice(members)
        nothing = choice.random() < 0.1
        nonblocking = choice.random() < 0.1 and operation in ("barrier", "allreduce")
        for number, member in enumerate(members):
            sent, received = "8", "8"
            if operation in _FROM_ROOT:
                sent, received = ("8", "0") if member == root else ("0", "8")
            elif operation in _TO_ROOT:
                sent, received = "8", "8" if member == root else "0"
            if operation.endswith("v") and choice.random() < 0.3 and member != root:
                sent, received = ("0", received) if operation != "scatterv" else (sent, "0")
            if operation == "exscan" and number == 0:
                received = "0"
            if nothing or operation in ("barrier", "create"):
                sent = received = "0"
            options = {"comm": name, "sent": sent, "received": received, "root": str(root)}
            label = f"MPI_{ {'broadcast': 'bcast'}.get(operation, operation).capitalize() }"
            label = {"MPI_Create": "MPI_Comm_dup"}.get(label, label)
            label = {"MPI_Neighbour": "MPI_Neighbor_alltoall"}.get(label, label)
            self.one_of(member, label, operation, options, nonblocking)

    def one_of(
        self, rank: int, label: str, operation: str, options: dict[str, str], later: bool
    ) -> None:
        if not later:  # collectives are for the first thread: their order is the same on all ranks
            self.call(rank, label, [], [Event(0, operation, (), options)], thread=0)
            return
        request = self.request()
        begun = Event(0, operation, (), {**options, "request": request})
        place = self.call(rank, "MPI_I" + label[4:].lower(), [begun], [], thread=0)
        self.pending[rank].append((request, "", {}, self.now[place]))

    def work(self) -> None:
        place = self.choice.randrange(self.ranks), self.choice.randrange(self.threads)
        self.now[place] += self.choice.randint(1, 20000) * 1e-6

    def run(self) -> Trace:
        for _ in range(self.steps):
            self.choice.choices(
                (self.message, self.exchange, self.collective, self.work, self.some_wait),
                (10, 2, 1, 5, 10),
            )[0]()
        for rank in range(self.ranks):
            while self.pending[rank]:
                self.wait(rank)
        end = round(max(self.now.values()) + 1, 6)
        trace = Trace(self.ranks, comms=self.comms)
        for rank in range(self.ranks):
            for thread in range(self.threads):
                trace.events[rank, thread] = [
                    Event(0.0, "enter", (ROOT,)),
                    *self.events[rank, thread],
                    Event(end, "leave", (ROOT,)),
                ]
        return trace

    def some_wait(self) -> None:
        self.wait(self.choice.randrange(self.ranks))


def random_trace(seed: int, ranks: int, steps: int, *, singly: bool, threads: int = 1) -> Trace:
    """Make a trace up.

    Parameters
    ----------
    seed
        The same one gives the same trace.
    ranks, steps
        How many; a step is a message, a collective operation, work, or a call that completes.
    singly
        No call completes more than one request.
    threads
        Of each rank; they share its requests.
    """
    return _Program(seed, ranks, steps, singly, threads).run()
