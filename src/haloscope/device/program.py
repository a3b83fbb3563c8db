"""Time steps as programs: kernels, exchanges and host calls, whose order on two streams follows from what they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from haloscope.device.declarations import Declaration, DeclarationError
from haloscope.device.interface import Array, Device, Graph, Kernel, Launch
from haloscope.regions import Region


class Field:
    """An array with named parts, in one or several partitions.

    Parts of one partition have no element in common; parts of two partitions are taken to have some.
    """

    def __init__(self, name: str, array: Array, **partitions: Iterable[str]) -> None:
        self.name, self.array = name, array
        self._partition_of = {
            part: partition for partition, parts in partitions.items() for part in parts
        }

    def __getitem__(self, parts: str | tuple[str, ...]) -> View:
        """A view of some parts of one partition."""
        names = (parts,) if isinstance(parts, str) else parts
        unknown = [name for name in names if name not in self._partition_of]
        if unknown:
            raise DeclarationError(
                f"unknown part {', '.join(unknown)}",
                location=f"field {self.name}",
                allowed=", ".join(self._partition_of),
            )
        partitions = {self._partition_of[name] for name in names}
        if len(partitions) != 1:
            raise DeclarationError(
                f"{', '.join(names)} are parts of several partitions: {', '.join(sorted(partitions))}",
                location=f"field {self.name}",
            )
        return View(self, partitions.pop(), frozenset(names), self.array)


@dataclass(frozen=True)
class View:
    """Some parts of a field; an argument of a kernel in the place of an array."""

    field: Field
    partition: str
    parts: frozenset[str]
    array: Array  # As kernels get it: the whole field, or a piece that has these parts
    written: frozenset[str] | None = None  # The parts that are written, if not all

    def but_writes(self, *parts: str) -> View:
        """The same view for an argument that a kernel reads in all its parts and writes only in `parts`."""
        return replace(self, written=self.field[parts].parts)

    def of(self, array: Array) -> View:
        """The same parts in a piece of the field, or in the field as another type."""
        return replace(self, array=array)

    def __str__(self) -> str:
        return f"{self.field.name}[{', '.join(sorted(self.parts))}]"


class Use(NamedTuple):
    """Use of an array by a kernel: all of it, or some parts."""

    argument: str
    array: Array
    view: View | None
    reads: bool
    writes: bool

    @property
    def name(self) -> str:
        """Name of the field with its parts, or of the argument."""
        return self.argument if self.view is None else str(self.view)


def uses(declaration: Declaration, arguments: Mapping[str, Any]) -> list[Use]:
    """Uses of the arrays among the arguments of a call, as the kernel declares them."""
    result = []
    for argument in declaration.arguments:
        value = arguments[argument.name]
        if argument.kind != "array" or value is None:
            continue
        view = value if isinstance(value, View) else None
        array = value if view is None else view.array
        reads, writes = argument.access != "out", argument.access != "in"
        if view is not None and view.written is not None:
            result.append(Use(argument.name, array, view, reads, writes=False))
            view = replace(view, parts=view.written, written=None)
            reads = False
        result.append(Use(argument.name, array, view, reads, writes))
    return result


def conflict(one: Use, other: Use) -> bool:
    """Whether two uses must keep their order: one writes what the other touches."""
    if not (one.writes or other.writes) or not _overlap(one.array, other.array):
        return False
    a, b = one.view, other.view
    if a is None or b is None or a.field is not b.field or a.partition != b.partition:
        return True
    return bool(a.parts & b.parts)


def _overlap(one: Array, other: Array) -> bool:
    (a, size), (b, other_size) = _extent(one), _extent(other)
    return a < b + other_size and b < a + size


def _extent(array: Array) -> tuple[int, int]:
    """Address and bytes of an array without gaps."""
    data = array.data
    address = data.ptr if hasattr(data, "ptr") else array.ctypes.data
    return int(address), int(array.nbytes)


MAIN, SIDE = "main", "side"
"""Streams: the main one, and one whose kernels go first."""


class Exchanges(Protocol):
    """An exchange of an array's values with other ranks; see :class:`haloscope.exchange.engine.Exchange`."""

    @property
    def capturable(self) -> bool:
        """Whether a graph can hold it."""

    @property
    def stream(self) -> Any:
        """The stream of its kernels; None: the main one."""

    def name_parts(self, array: Array, *, sent: View, filled: View) -> None:
        """Name the parts that are sent and filled."""

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        """Bind arrays beforehand: those sent, and `into` the one that is filled if it is another."""

    def start(self, state: Array) -> None:
        """Pack and begin to send."""

    def progress(self) -> None:
        """Let messages go on."""

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Wait and unpack."""

    def swap(self, state: Array, into: Array | None = None) -> None:
        """Start and finish with nothing in between."""


@dataclass(eq=False)
class Node:
    """A kernel, a part of an exchange, or a host call of a step."""

    name: str
    stream: str
    run: Callable[[], None]
    uses: list[Use]
    region: Region | None = None
    capturable: bool = True
    kind: str = "exchange"  # or ``kernel``, ``launch``, ``host``
    starts: Exchanges | None = None  # The exchange whose messages are under way from here on
    finishes: Exchanges | None = None
    # Earlier nodes of the other stream that it follows, with the reason; set by :meth:`Step.close`.
    after: list[tuple[Node, str]] = field(default_factory=list)
    waits: bool = False  # Whether its stream waits for the other one just before it

    @property
    def touches(self) -> list[str]:
        """Words for the fields, or parts of fields, that it reads and writes; tables of kernels are none."""
        return [
            f"{' and '.join(['reads'] * use.reads + ['writes'] * use.writes)} {use.name}"
            for use in self.uses
            if (use.view is not None or self.kind != "kernel") and (use.reads or use.writes)
        ]


class Step:
    """One step, recorded once and run many times; see :class:`Program`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.nodes: list[Node] = []
        self._closed = False
        self._planned = False
        self._under_way: dict[int, tuple[View, View]] = {}  # Views of exchanges that were started
        self.joins = False  # Whether the main stream waits for the side one after the last node

    def kernel(
        self, kernel: Kernel, *, on: str = MAIN, region: Region | None = None, **call: Any
    ) -> None:
        """Launch a kernel; fields among the arguments are views of the parts that it touches.

        `region`: of profiles: successive nodes of one region make one visit; `call`: as for `Kernel.bind`.
        """
        launch = kernel.bind(stream=self._stream(on), **call)
        declared = kernel.declaration
        touched = uses(declared, call)
        self._add(Node(declared.kernel, on, launch, touched, region, kind="kernel"))

    def start(self, exchange: Exchanges, sent: View, *, into: View, on: str = SIDE) -> None:
        """Send the values of some parts; `into` are those that :meth:`finish` fills."""
        self._require_stream(exchange, on)
        if id(exchange) in self._under_way:
            raise _misused("it is under way already", "finish it first")
        self._under_way[id(exchange)] = sent, into
        _prepare(exchange, sent, into)
        use = Use("state", sent.array, sent, reads=True, writes=False)
        run = partial(exchange.start, sent.array)
        self._add(
            Node("start of exchange", on, run, [use], None, exchange.capturable, starts=exchange)
        )

    def finish(self, exchange: Exchanges, *, on: str = SIDE) -> None:
        """Wait for the values that others have sent, and fill the parts that :meth:`start` named."""
        self._require_stream(exchange, on)
        if id(exchange) not in self._under_way:
            raise _misused("it is not under way", "start it first")
        sent, into = self._under_way.pop(id(exchange))
        use = Use("state", into.array, into, reads=False, writes=True)
        run = partial(exchange.finish, sent.array, _elsewhere(sent, into))
        self._add(
            Node("end of exchange", on, run, [use], None, exchange.capturable, finishes=exchange)
        )

    def swap(self, exchange: Exchanges, sent: View, *, into: View, on: str = MAIN) -> None:
        """Send and fill with nothing in between."""
        self._require_stream(exchange, on)
        _prepare(exchange, sent, into)
        touched = [
            Use("state", sent.array, sent, reads=True, writes=False),
            Use("state", into.array, into, reads=False, writes=True),
        ]
        run = partial(exchange.swap, sent.array, _elsewhere(sent, into))
        self._add(Node("exchange", on, run, touched, None, exchange.capturable))

    def launch(self, name: str, launch: Launch, *, writes: Iterable[Field]) -> None:
        """Add a launch that is already bound, on the main stream; it may read and write all of `writes`."""
        touched = [Use(one.name, one.array, None, reads=True, writes=True) for one in writes]
        self._add(Node(name, MAIN, launch, touched, kind="launch"))

    def host(
        self,
        name: str,
        call: Callable[[], None],
        *,
        reads: Iterable[Field],
        writes: Iterable[Field],
        on: str = MAIN,
    ) -> None:
        """Call the host once a stream's earlier work is launched; such steps are not captured into graphs."""
        touched = [Use(f.name, f.array, None, reads=True, writes=False) for f in reads]
        touched += [Use(f.name, f.array, None, reads=False, writes=True) for f in writes]
        self._add(Node(name, on, call, touched, capturable=False, kind="host"))

    def _stream(self, on: str) -> Any:
        if on not in (MAIN, SIDE):
            raise DeclarationError("unknown stream", location=f"stream {on}", allowed="main, side")
        return self._device.side if on == SIDE else None

    def _require_stream(self, exchange: Exchanges, on: str) -> None:
        """See that the kernels of an exchange run where the step takes them to run."""
        if exchange.stream is not self._stream(on):
            raise _misused(f"its kernels have another stream than {on}", "open it with that stream")

    def _add(self, node: Node) -> None:
        if self._planned:
            raise _misused("the step has run already", "record all of it before", "step")
        self.nodes.append(node)
        self._closed = False

    def close(self) -> None:
        """Find which nodes must wait for the other stream."""
        # The side stream begins after all earlier work of the main stream, and the main stream ends last.
        # A wait covers everything that was launched on the other stream before it.
        if self._closed:
            return
        # A stream follows the nodes before this number on the other stream; -1: not even the step before.
        knows = {MAIN: 0, SIDE: -1}
        for number, node in enumerate(self.nodes):
            node.after = [
                (early, reason)
                for early in self.nodes[:number]
                if early.stream != node.stream and (reason := _reason(early, node))
            ]
            last = max((self.nodes.index(early) for early, _ in node.after), default=-1)
            node.waits = last >= knows[node.stream] or knows[node.stream] < 0
            if node.waits:
                knows[node.stream] = number
        sides = [number for number, node in enumerate(self.nodes) if node.stream == SIDE]
        self.joins = bool(sides) and sides[-1] >= knows[MAIN]
        self._closed = True

    @property
    def capturable(self) -> bool:
        """Whether a graph can hold it."""
        return all(node.capturable for node in self.nodes)


def _prepare(exchange: Exchanges, sent: View, into: View) -> None:
    for array in (sent.array, into.array):
        exchange.name_parts(array, sent=sent, filled=into)
    exchange.prepare(sent.array, into=_elsewhere(sent, into))


def _elsewhere(sent: View, into: View) -> Array | None:
    """The array that is filled, if it is another one than that which is sent."""
    return None if into.array is sent.array else into.array


def _misused(problem: str, remedy: str, location: str = "exchange of a step") -> DeclarationError:
    return DeclarationError(problem, location=location, remedy=remedy)


def _reason(early: Node, late: Node) -> str:
    """Why a node must follow another; empty where it need not."""
    for a in early.uses:
        for b in late.uses:
            if conflict(a, b):
                done = "writes" if a.writes else "reads"
                return f"{early.name} {done} {a.name}, {late.name} {'writes' if b.writes else 'reads'} {b.name}"
    return ""


def _groups(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes one by one, and successive ones of a region together, until one waits."""
    group: list[Node] = []
    for node in nodes:
        if group and (node.waits or node.region is None or node.region is not group[0].region):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _within(context: Any, calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Calls in turn within a context, as one call."""
    if len(calls) == 1:
        (call,) = calls

        def once() -> None:
            with context:
                call()

        return once

    def all_of_them() -> None:
        with context:
            for call in calls:
                call()

    return all_of_them


class Program:
    """A cycle of recorded steps: for example, from the first of two states to the second and back."""

    # `cycle[k]` is the turn after turn k. On a GPU steps that need no host are captured into graphs of `block`
    # cycles. `progress`: ``test``: messages go on between kernels while they are under way; ``thread``: within
    # the context `thread`.

    def __init__(
        self,
        device: Device,
        name: str,
        *,
        cycle: Sequence[int] = (0,),
        block: int = 1,
        graphs: bool = True,
        progress: str = "none",
        thread: Any = None,
    ) -> None:
        self._device, self.name, self.cycle, self._block = device, name, tuple(cycle), block
        self._graphs_wanted, self._progress, self._thread = graphs, progress, thread
        self.steps = [Step(device) for _ in cycle]
        self.next = 0  # The turn that comes
        # By cycles and first turn: a graph, and the turn after it.
        self._graphs: dict[tuple[int, int], tuple[Graph, int]] = {}
        self._plans: list[list[Callable[[], None]] | None] = [None for _ in cycle]

    def turn(self, number: int) -> Step:
        """The step of a turn, to be recorded."""
        return self.steps[number]

    def advance(self, count: int) -> None:
        """Take so many steps."""
        length = len(self.cycle)
        if self._captured:
            for cycles in dict.fromkeys((self._block, 1)):
                while count >= cycles * length:
                    graph, following = self._graph(cycles)
                    graph.replay()
                    self.next = following
                    count -= cycles * length
        for _ in range(count):
            self._one_step()

    @property
    def _captured(self) -> bool:
        on_gpu = self._device.kind != "cpu" and self._graphs_wanted
        return on_gpu and all(step.capturable for step in self.steps)

    def _graph(self, cycles: int) -> tuple[Graph, int]:
        key = cycles, self.next
        if key not in self._graphs:

            def work() -> None:
                for _ in range(cycles * len(self.cycle)):
                    self._one_step()

            graph = self._device.graph(work)
            self._graphs[key] = graph, self.next
        return self._graphs[key]

    def _one_step(self) -> None:
        now = self.next
        plan = self._plans[now]
        if plan is None:
            plan = self._plans[now] = self._plan(self.steps[now])
        for act in plan:
            act()
        self.next = self.cycle[now]

    def _plan(self, step: Step) -> list[Callable[[], None]]:
        """Calls of a step in turn: waits between streams, and nodes by regions."""
        step.close()
        step._planned = True
        plan: list[Callable[[], None]] = []
        under_way: list[Exchanges] = []
        begun = 0  # Where messages began to travel
        for group in _groups(step.nodes):
            first = group[0]
            if first.waits:
                plan.append(self._device.fork if first.stream == SIDE else self._device.join)
            if first.finishes is not None:
                under_way.remove(first.finishes)
                if not under_way and self._progress == "thread" and self._thread is not None:
                    plan[begun:] = [_within(self._thread, plan[begun:])]
            runs = [node.run for node in group]
            if under_way and self._progress == "test" and first.kind == "kernel":
                tests = [exchange.progress for exchange in under_way]
                runs = [call for run in runs for call in (run, *tests)]
            plan += runs if first.region is None else [_within(first.region, runs)]
            if first.starts is not None:
                if not under_way:
                    begun = len(plan)
                under_way.append(first.starts)
        if step.joins:
            plan.append(self._device.join)
        return plan

    def describe(self) -> str:
        """Nodes of each step with their streams, what they follow, and why."""
        lines = []
        for number, step in enumerate(self.steps):
            step.close()
            lines.append(f"{self.name}, turn {number}, then turn {self.cycle[number]}:")
            for node in step.nodes:
                touched = ", ".join(node.touches)
                where = f" [{node.region.name}]" if node.region is not None else ""
                lines.append(f"  {node.stream:4} {node.name}{where}: {touched or 'no fields'}")
                if node.waits:
                    other = "main" if node.stream == SIDE else "side"
                    reasons = [reason for _, reason in node.after[-1:]] or ["the step before"]
                    lines.append(f"         waits for {other}: {reasons[0]}")
            if step.joins:
                lines.append("  main waits for side: end of the step")
        return "\n".join(lines)
