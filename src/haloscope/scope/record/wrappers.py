"""Writes the wrappers of MPI functions from the table of prototypes, and the trampolines in assembler."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from haloscope.scope.record.prototypes import Function, functions

_TRAMPOLINES = """\
// Generated: the names of MPI functions, each leading to where its slot points.
#if !defined(__x86_64__)
#error "programs are measured on x86-64 only"
#endif
  .text
"""

# hs_mpi_thread.fortran_site becomes the address that the call returns to.
_NOTE_SITE = """\
  movq (%rsp), %r11
  movq hs_mpi_thread@gottpoff(%rip), %r10
  movq %r11, %fs:8(%r10)
"""

# Registers that hold arguments, in the order in which they are kept.
_WHOLE = ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9")
_VECTORS = tuple(f"xmm{number}" for number in range(8))


def _first_call() -> str:
    """The code that asks where a function leads, then goes there as if nothing had been."""
    kept = [f"movups %{name}, {16 * at}(%rsp)" for at, name in enumerate(_VECTORS)]
    taken = [f"movups {16 * at}(%rsp), %{name}" for at, name in enumerate(_VECTORS)]
    lines = [
        *(f"push %{name}" for name in _WHOLE),
        *("movq %rsp, %rax", "subq $160, %rsp", "andq $-16, %rsp", "movq %rax, 144(%rsp)"),
        *(*kept, "movl %r11d, %edi", "call hs_first_call", "movq %rax, %r11", *taken),
        "movq 144(%rsp), %rsp",
        *(f"pop %{name}" for name in reversed(_WHOLE)),
        "jmp *%r11",
    ]
    return "  // The first call of a function.\n  .p2align 4\nfirst_call:\n" + "".join(
        f"  {line}\n" for line in lines
    )


def exported() -> Sequence[str]:
    """Names of the C functions that the preloaded library offers: those that every MPI has."""
    return [f"MPI_{function.name}" for function in functions() if function.everywhere]


def exported_to_fortran() -> Sequence[str]:
    """Names of Fortran's functions that the preloaded library offers.

    They note where the program called them, and MPI's Fortran library does the rest. Those that
    MPI begins with may be the first that a program calls, under whatever name its compiler gives.
    """
    plain = [function.name.lower() for function in functions() if not function.name.endswith("_c")]
    names = [f"mpi_{name}{form}" for name in plain for form in ("_", "_f08_", "_f08ts_")]
    for first in ("mpi_init", "mpi_init_thread"):
        names += [first, f"{first}__", first.upper()]
    return names


def trampolines() -> str:
    """Assembly source of the preloaded library's trampolines, for x86-64."""
    names = [*exported(), *exported_to_fortran()]
    parts = [_TRAMPOLINES]
    for number, name in enumerate(names):
        noting = "" if name.startswith("MPI_") and not name.isupper() else _NOTE_SITE
        parts.append(
            f"  .globl {name}\n  .type {name}, @function\n  .p2align 3\n{name}:\n{noting}"
            f"  jmp *(hs_slots + {8 * number})(%rip)\n  .size {name}, . - {name}\n"
            f"first_{number}:\n  movl ${number}, %r11d\n  jmp first_call\n"
        )
    parts.append(_first_call())
    parts.append("  .data\n  .hidden hs_slots\n  .globl hs_slots\n  .p2align 3\nhs_slots:\n")
    parts += [f"  .quad first_{number}\n" for number in range(len(names))]
    parts.append("  .section .rodata\n  .hidden hs_names\n  .globl hs_names\nhs_names:\n")
    parts += [f'  .asciz "{name}"\n' for name in names]
    parts.append('  .byte 0\n  .section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)


# A rule says what a wrapper does besides entering and leaving its region: what stands before the
# call, and what after it. Arguments go by the names that the table gives them. Within a rule
#
# - ``region`` is the region, HS_FILTERED where the user's filter names it,
# - ``code`` is what the call has returned, after it.

_OWN_STATUS = "MPI_Status own; if (status == MPI_STATUS_IGNORE) status = &own;"
_COMMUNICATOR = "struct hs_comm *communicator = hs_comm_of(comm);"
_DONE = "if (code == MPI_SUCCESS)"
_RECEIVED = "hs_record_receive(region, code, status, hs_comm_of(comm));"
# Of count, datatype and tag of what is sent.
_SENDS = (
    "if (HS_CAN_SEND({0}, {1}, {2})) hs_record_send(region, HS_BYTES({0}, {1}), dest, {2}, comm);"
)
_STARTS = (
    "const uint32_t number = HS_CAN_SEND({0}, {1}, {2})"
    " ? hs_record_isend(region, HS_BYTES({0}, {1}), dest, {2}, comm) : HS_NOBODY;"
)
_PLAIN, _EXCHANGED, _REPLACED = (
    ("count", "datatype", "tag"),
    ("sendcount", "sendtype", "sendtag"),
    ("count", "datatype", "sendtag"),
)
_RECEIVES_TOO = " const uint32_t receive = hs_record_irecv(region, source);"
_TRACKS_BOTH = f"{_DONE} hs_track_exchange(*request, number, receive, comm, source, recvtag);"
# Of the kind of access, and of count and datatype of what is moved.
_ACCESS = "if (HS_RECORDED) hs_record_access(HS_EVENT_{}, win, target_rank, HS_BYTES({}, {}));"

# What stands before the call, and what after it.
_RULES: dict[str, tuple[str, str]] = {
    "region": ("", ""),
    "abort": ("hs_record_abort(errorcode);", ""),
    "send": (_SENDS.format(*_PLAIN), ""),
    "isend": (_STARTS.format(*_PLAIN), f"{_DONE} hs_track_send(*request, number);"),
    "send_init": (
        "",
        f"{_DONE} hs_keep_send(*request, HS_BYTES(count, datatype), dest, tag, comm);",
    ),
    "recv": (_OWN_STATUS, _RECEIVED),
    "irecv": (
        "const uint32_t number = hs_record_irecv(region, source);",
        f"{_DONE} hs_track_receive(*request, number, hs_comm_of(comm), source, tag);",
    ),
    "recv_init": ("", f"{_DONE} hs_keep_receive(*request, source, tag, comm);"),
    "sendrecv": (f"{_OWN_STATUS} {_SENDS.format(*_EXCHANGED)}", _RECEIVED),
    "replace": (f"{_OWN_STATUS} {_SENDS.format(*_REPLACED)}", _RECEIVED),
    "isendrecv": (_STARTS.format(*_EXCHANGED) + _RECEIVES_TOO, _TRACKS_BOTH),
    "ireplace": (_STARTS.format(*_REPLACED) + _RECEIVES_TOO, _TRACKS_BOTH),
    # A handle may be one that the MPI has given to other requests, too.
    "other_request": ("", "if (code == MPI_SUCCESS) hs_track_other(*request, 0);"),
    "other_persistent": ("", "if (code == MPI_SUCCESS) hs_track_other(*request, 1);"),
    "mprobe": ("", "if (code == MPI_SUCCESS) hs_track_message(*message, comm);"),
    "improbe": ("", "if (code == MPI_SUCCESS && *flag) hs_track_message(*message, comm);"),
    "mrecv": (
        f"{_OWN_STATUS} struct hs_comm *communicator = hs_take_message(*message);",
        "hs_record_receive(region, code, status, communicator); hs_release_comm(communicator);",
    ),
    "imrecv": (
        "struct hs_comm *communicator = hs_take_message(*message);"
        " const uint32_t number ="
        " communicator ? hs_record_irecv(region, MPI_ANY_SOURCE) : HS_NOBODY;",
        "if (code == MPI_SUCCESS)"
        " hs_track_receive(*request, number, communicator, MPI_ANY_SOURCE, MPI_ANY_TAG);"
        " hs_release_comm(communicator);",
    ),
    "new": (
        "",
        "if (code == MPI_SUCCESS) hs_new_comm(comm, *newcomm, 0);"
        " hs_record_created(region, comm, HS_OP_CREATE);",
    ),
    "new_group": (
        "",
        "if (code == MPI_SUCCESS) { hs_new_comm(comm, *newcomm, tag);"
        " hs_record_created(region, *newcomm, HS_OP_CREATE); }",
    ),
    "idup": (
        f"{_COMMUNICATOR} const uint32_t number = communicator"
        " ? hs_record_icollective(region, communicator, HS_OP_CREATE | HS_NO_ROOT, 0, 0)"
        " : HS_NOBODY;",
        "if (code == MPI_SUCCESS) hs_track_idup(*request, number, comm, newcomm);",
    ),
    "new_win": (
        "",
        "if (code == MPI_SUCCESS) hs_new_window(*win, comm);"
        " hs_record_created(region, comm, HS_OP_CREATE);",
    ),
    "fence": ("", "hs_record_fence(region, win);"),
    "post": ("hs_record_epoch(region, HS_EVENT_POST, win, group);", ""),
    "start": ("hs_record_epoch(region, HS_EVENT_START, win, group);", ""),
    "complete": ("", "hs_record_window(region, HS_EVENT_COMPLETE, win);"),
    "win_wait": ("", "hs_record_window(region, HS_EVENT_WAIT, win);"),
    "win_test": (
        "",
        "if (code == MPI_SUCCESS && *flag) hs_record_window(region, HS_EVENT_WAIT, win);",
    ),
    "lock": (
        "",
        "if (HS_RECORDED) hs_record_lock(HS_EVENT_LOCK, win, target_rank, 0,"
        " lock_type == MPI_LOCK_EXCLUSIVE);",
    ),
    "lock_all": ("", "if (HS_RECORDED) hs_record_lock(HS_EVENT_LOCK, win, 0, 1, 0);"),
    "unlock": ("", "if (HS_RECORDED) hs_record_lock(HS_EVENT_UNLOCK, win, target_rank, 0, 0);"),
    "unlock_all": ("", "if (HS_RECORDED) hs_record_lock(HS_EVENT_UNLOCK, win, 0, 1, 0);"),
    "put": (_ACCESS.format("PUT", "origin_count", "origin_datatype"), ""),
    "get": (_ACCESS.format("GET", "origin_count", "origin_datatype"), ""),
    "fetch": (_ACCESS.format("GET", "result_count", "result_datatype"), ""),
    "fetch_one": (_ACCESS.format("GET", "1", "datatype"), ""),
    "read": (_OWN_STATUS, "if (HS_RECORDED) hs_record_file(0, code, status);"),
    "write": (_OWN_STATUS, "if (HS_RECORDED) hs_record_file(1, code, status);"),
    "iread": ("", "if (code == MPI_SUCCESS) hs_track_file(*request, 0, HS_RECORDED);"),
    "iwrite": ("", "if (code == MPI_SUCCESS) hs_track_file(*request, 1, HS_RECORDED);"),
    "file_open": (
        "",
        "if (code == MPI_SUCCESS) hs_new_file(*file, comm);"
        " hs_record_created(region, comm, HS_OP_CREATE);",
    ),
    "file_close": (
        "struct hs_comm *communicator = hs_take_file(*file);",
        "if (communicator)"
        " hs_record_collective(region, communicator, HS_OP_FREE | HS_NO_ROOT, 0, 0);"
        " hs_release_comm(communicator);",
    ),
}

# Bytes that a collective takes from this rank's send buffers and puts into its receive buffers.
# `communicator` is the tracked communicator, `part` 1 at the root, 0 elsewhere, -1 where nothing is done;
# arguments that MPI ignores on this rank are not looked at. `sendbuf` may be MPI_IN_PLACE.
_PEERS = "communicator->peer_count"
_RANK = "communicator->rank"
_OUTSIDE = "part < 0 || communicator->between ? 0"
_IN_PLACE = "(sendbuf == MPI_IN_PLACE)"
_SENT, _RECEIVED_BLOCK = "HS_BYTES(sendcount, sendtype)", "HS_BYTES(recvcount, recvtype)"
_REDUCED = "HS_BYTES(count, datatype)"
_SENT_LIST = f"HS_SUM(sendcounts, {_PEERS}) * hs_type_size(sendtype)"
_RECEIVED_LIST = f"HS_SUM(recvcounts, {_PEERS}) * hs_type_size(recvtype)"
_SENT_TYPES, _RECEIVED_TYPES = (
    "HS_SUM_BYTES(sendcounts, sendtypes, {})",
    "HS_SUM_BYTES(recvcounts, recvtypes, {})",
)
_INWARDS, _OUTWARDS = "communicator->in_degree", "communicator->out_degree"


def _to_root(own: str, everything: str) -> tuple[str, str]:
    """Of a gather: `own` is what the root sends to itself in place."""
    sent = f"part == 0 ? {_SENT} : {_OUTSIDE} : {_IN_PLACE} ? {own} : {_SENT}"
    return sent, f"part == 1 ? {everything} : 0"


def _from_root(own: str, everything: str) -> tuple[str, str]:
    received = f"part == 0 ? {_RECEIVED_BLOCK} : {_OUTSIDE} : recvbuf == MPI_IN_PLACE ? {own} : {_RECEIVED_BLOCK}"
    return f"part == 1 ? {everything} : 0", received


_PAYLOADS: dict[str, tuple[str, str]] = {
    "none": ("0", "0"),
    "bcast": (f"part == 1 ? {_REDUCED} : 0", f"part == 0 ? {_REDUCED} : 0"),
    "gather": _to_root(_RECEIVED_BLOCK, f"{_PEERS} * {_RECEIVED_BLOCK}"),
    "gatherv": _to_root(f"HS_BYTES(recvcounts[{_RANK}], recvtype)", _RECEIVED_LIST),
    "scatter": _from_root(_SENT, f"{_PEERS} * {_SENT}"),
    "scatterv": _from_root(f"HS_BYTES(sendcounts[{_RANK}], sendtype)", _SENT_LIST),
    "allgather": (f"{_IN_PLACE} ? {_RECEIVED_BLOCK} : {_SENT}", f"{_PEERS} * {_RECEIVED_BLOCK}"),
    "allgatherv": (
        f"{_IN_PLACE} ? HS_BYTES(recvcounts[{_RANK}], recvtype) : {_SENT}",
        _RECEIVED_LIST,
    ),
    "alltoall": (
        f"{_PEERS} * ({_IN_PLACE} ? {_RECEIVED_BLOCK} : {_SENT})",
        f"{_PEERS} * {_RECEIVED_BLOCK}",
    ),
    "alltoallv": (f"{_IN_PLACE} ? {_RECEIVED_LIST} : {_SENT_LIST}", _RECEIVED_LIST),
    "alltoallw": (
        f"{_IN_PLACE} ? {_RECEIVED_TYPES.format(_PEERS)} : {_SENT_TYPES.format(_PEERS)}",
        _RECEIVED_TYPES.format(_PEERS),
    ),
    "reduce": (
        f"part == 0 || (part == 1 && !communicator->between) ? {_REDUCED} : 0",
        f"part == 1 ? {_REDUCED} : 0",
    ),
    "allreduce": (_REDUCED, _REDUCED),
    # Between two groups recvcounts are those of this group.
    "reduce_scatter": (
        "HS_SUM(recvcounts, communicator->size) * hs_type_size(datatype)",
        f"HS_BYTES(recvcounts[{_RANK}], datatype)",
    ),
    "reduce_scatter_block": (
        "communicator->size * HS_BYTES(recvcount, datatype)",
        "HS_BYTES(recvcount, datatype)",
    ),
    "neighbour_allgather": (_SENT, f"{_INWARDS} * {_RECEIVED_BLOCK}"),
    "neighbour_allgatherv": (_SENT, f"HS_SUM(recvcounts, {_INWARDS}) * hs_type_size(recvtype)"),
    "neighbour_alltoall": (f"{_OUTWARDS} * {_SENT}", f"{_INWARDS} * {_RECEIVED_BLOCK}"),
    "neighbour_alltoallv": (
        f"HS_SUM(sendcounts, {_OUTWARDS}) * hs_type_size(sendtype)",
        f"HS_SUM(recvcounts, {_INWARDS}) * hs_type_size(recvtype)",
    ),
    "neighbour_alltoallw": (_SENT_TYPES.format(_OUTWARDS), _RECEIVED_TYPES.format(_INWARDS)),
}

_OPENING = """\
/* Generated: the wrappers of the MPI functions that this MPI has. */
#include "mpi_tracer.h"

"""


def _collective(function: Function) -> tuple[str, str]:
    """Code before and after the call of a collective operation."""
    form, operation, payload = function.rule
    sent, received = _PAYLOADS[payload]
    names = [name for name, _ in function.arguments]
    root = f"hs_root(communicator, HS_OP_{operation}, root)"
    if "root" not in names:
        root = f"HS_OP_{operation} | HS_NO_ROOT"
    figures = f"const uint64_t sent = {sent}, received = {received};"
    if " part " in f" {figures} ".replace("(", " "):
        figures = f"const int part = hs_part(communicator, root); {figures}"
    if form == "collective":
        return "", (
            f"if (HS_RECORDED) {{ {_COMMUNICATOR} if (communicator) {{ {figures}"
            f" hs_record_collective(region, communicator, {root}, sent, received); }} }}"
            f" else {{ {_COMMUNICATOR} if (communicator)"
            " hs_record_collective(region, communicator, 0, 0, 0); }"
        )
    if form == "icollective":
        return (
            f"{_COMMUNICATOR} uint32_t number = HS_NOBODY; if (communicator) {{ {figures}"
            f" number = hs_record_icollective(region, communicator, {root}, sent, received); }}",
            "if (code == MPI_SUCCESS) hs_track_collective(*request, number);",
        )
    return _COMMUNICATOR, (
        f"if (code == MPI_SUCCESS && communicator) {{ {figures}"
        f" hs_keep_collective(*request, communicator, {root}, sent, received); }}"
    )


# Roles of functions that programs call often.
_OFTEN = ("send", "isend", "recv", "irecv", "sendrecv", "wait", "test", "probe", "start", "rma")


def _wrapper(function: Function, index: int) -> str:
    """A wrapper in C."""
    name = function.name
    rarely = "" if function.role in _OFTEN else "_RARELY"
    result = f"static int wrap_{name}({function.declaration})"
    arguments = ", ".join(["region", *([function.call] if function.call else [])])
    if function.rule == ("own",):
        own = ", ".join(["uint32_t region", *(text for _, text in function.arguments)])
        # Those that MPI starts with are not passed on where it does not run yet.
        first = name in ("Init", "Init_thread")
        test = "HS_UNLIKELY(HS_NESTED)" if first else "HS_PASS_ON"
        return (
            f'int hs_own_{name}({own}) __attribute__((visibility("hidden")));\n'
            f"{result} {{\n"
            f"  if ({test}) return PMPI_{name}({function.call});\n"
            f"  HS_BEGIN{rarely}({index})\n"
            f"  const int code = hs_own_{name}({arguments});\n"
            f"  HS_END{rarely}\n"
            f"  return code;\n}}\n"
        )
    before, after = _collective(function) if len(function.rule) == 3 else _RULES[function.rule[0]]
    if function.rule[0] in ("put", "get", "fetch") and "request" in function.call.split(", "):
        after = _RULES["other_request"][1]
    lines = [
        f"{result} {{",
        f"  if (HS_PASS_ON) return PMPI_{name}({function.call});",
        f"  HS_BEGIN{rarely}({index})",
        f"  {before}" if before else "",
        f"  const int code = PMPI_{name}({function.call});",
        f"  {after}" if after else "",
        f"  HS_END{rarely}",
        "  return code;",
        "}",
    ]
    # A statement a line: compilers mistrust what follows an `if` on its line.
    return "\n".join(line.replace("; ", ";\n  ") for line in lines if line) + "\n"


def wrappers(declared: Collection[str] | None) -> str:
    """C source of the wrappers of an MPI."""
    chosen = [
        function
        for function in functions()
        if declared is None or f"PMPI_{function.name}" in declared
    ]
    shown = list(dict.fromkeys((function.shown, function.role) for function in chosen))
    index = {key: number for number, key in enumerate(shown)}
    parts = [_OPENING]
    # An mpi.h may declare what its library lacks.
    parts += [f"#pragma weak PMPI_{function.name}\n" for function in chosen]
    parts.append("\nconst struct hs_described hs_described[] = {\n")
    parts += [f'  {{"{name}", "{role}"}},\n' for name, role in shown]
    parts.append("};\n")
    unknown = ", ".join(["HS_REGION_UNKNOWN"] * len(shown))
    parts.append(f"uint32_t hs_regions[] = {{{unknown}}};\n\n")
    parts += [
        _wrapper(function, index[function.shown, function.role]) + "\n" for function in chosen
    ]
    parts.append(
        '__attribute__((visibility("default"))) const struct hs_function '
        "hs_tracer_functions[] = {\n"
    )
    parts += [
        f'  {{"MPI_{function.name}", (void *)wrap_{function.name}, (const void *)PMPI_{function.name}}},\n'
        for function in chosen
    ]
    parts.append("  {NULL, NULL, NULL}};\n")
    return "".join(parts)
