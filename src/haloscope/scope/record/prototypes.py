"""The table of measured MPI functions: arguments, role of the region, recorded message.

A line is ``NAME ROLE RULE : ARGUMENTS``. Roles are those of the measurement's definitions. Rules
are explained in :mod:`haloscope.scope.record.wrappers`; ``region`` is a plain timed region, and
``own`` a wrapper that is written by hand. Arguments are in C, with these words for types that
differ between a function and its large-count form (``MPI_Send_c``), which exists exactly where
one of them occurs:

========  =====================  ====================
word      plain                  large
========  =====================  ====================
COUNT     int                    MPI_Count
COUNTS    const int []           const MPI_Count []
DISPLS    const int []           const MPI_Aint []
SPAN      MPI_Aint               MPI_Count
SPANS     const MPI_Aint []      const MPI_Count []
UNIT      int                    MPI_Aint
PLACE     int *                  MPI_Count *
SPOT      MPI_Aint *             MPI_Count *
========  =====================  ====================

Functions that only read a handle (``MPI_Comm_rank``, ``MPI_Get_count``, ``MPI_Wtime`` and the
like) are not here: to measure them would take longer than they do.
"""

from __future__ import annotations

from dataclasses import dataclass

_LARGE = {
    "COUNT": ("int {}", "MPI_Count {}"),
    "COUNTS": ("const int {}[]", "const MPI_Count {}[]"),
    "DISPLS": ("const int {}[]", "const MPI_Aint {}[]"),
    "SPAN": ("MPI_Aint {}", "MPI_Count {}"),
    "SPANS": ("const MPI_Aint {}[]", "const MPI_Count {}[]"),
    "UNIT": ("int {}", "MPI_Aint {}"),
    "PLACE": ("int *{}", "MPI_Count *{}"),
    "SPOT": ("MPI_Aint *{}", "MPI_Count *{}"),
}
_SHORT = {
    "IN": "const void *{}",
    "OUT": "void *{}",
    "TYPE": "MPI_Datatype {}",
    "TYPES": "const MPI_Datatype {}[]",
    "COMM": "MPI_Comm {}",
    "NEWCOMM": "MPI_Comm *{}",
    "REQUEST": "MPI_Request *{}",
    "STATUS": "MPI_Status *{}",
    "INFO": "MPI_Info {}",
    "WIN": "MPI_Win {}",
    "FILE": "MPI_File {}",
    "OP": "MPI_Op {}",
    "GROUP": "MPI_Group {}",
    "INTS": "const int {}[]",
}
_MESSAGE = "IN buf, COUNT count, TYPE datatype, int dest, int tag, COMM comm"
_RECEIVE = "OUT buf, COUNT count, TYPE datatype, int source, int tag, COMM comm"
_EXCHANGE = (
    "IN sendbuf, COUNT sendcount, TYPE sendtype, int dest, int sendtag, "
    "OUT recvbuf, COUNT recvcount, TYPE recvtype, int source, int recvtag, COMM comm"
)
_REPLACE = (
    "OUT buf, COUNT count, TYPE datatype, int dest, int sendtag, int source, int recvtag, COMM comm"
)
_PARTS = "int partitions, MPI_Count count, TYPE datatype"

_POINT_TO_POINT = f"""
Send              send      send          : {_MESSAGE}
Bsend             send      send          : {_MESSAGE}
Ssend             send      send          : {_MESSAGE}
Rsend             send      send          : {_MESSAGE}
Isend             isend     isend         : {_MESSAGE}, REQUEST request
Ibsend            isend     isend         : {_MESSAGE}, REQUEST request
Issend            isend     isend         : {_MESSAGE}, REQUEST request
Irsend            isend     isend         : {_MESSAGE}, REQUEST request
Send_init         request   send_init     : {_MESSAGE}, REQUEST request
Bsend_init        request   send_init     : {_MESSAGE}, REQUEST request
Ssend_init        request   send_init     : {_MESSAGE}, REQUEST request
Rsend_init        request   send_init     : {_MESSAGE}, REQUEST request
Recv              recv      recv          : {_RECEIVE}, STATUS status
Irecv             irecv     irecv         : {_RECEIVE}, REQUEST request
Recv_init         request   recv_init     : {_RECEIVE}, REQUEST request
Sendrecv          sendrecv  sendrecv      : {_EXCHANGE}, STATUS status
Sendrecv_replace  sendrecv  replace       : {_REPLACE}, STATUS status
Isendrecv         isend     isendrecv     : {_EXCHANGE}, REQUEST request
Isendrecv_replace isend     ireplace      : {_REPLACE}, REQUEST request
Probe             probe     region        : int source, int tag, COMM comm, STATUS status
Iprobe            probe     region        : int source, int tag, COMM comm, int *flag, STATUS status
Mprobe            probe     mprobe        : int source, int tag, COMM comm, MPI_Message *message, STATUS status
Improbe           probe     improbe       : int source, int tag, COMM comm, int *flag, MPI_Message *message, STATUS status
Mrecv             recv      mrecv         : OUT buf, COUNT count, TYPE datatype, MPI_Message *message, STATUS status
Imrecv            irecv     imrecv        : OUT buf, COUNT count, TYPE datatype, MPI_Message *message, REQUEST request
Start             start     own           : REQUEST request
Startall          start     own           : int count, MPI_Request requests[]
Wait              wait      own           : REQUEST request, STATUS status
Waitany           wait      own           : int count, MPI_Request requests[], int *index, STATUS status
Waitall           wait      own           : int count, MPI_Request requests[], MPI_Status *statuses
Waitsome          wait      own           : int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses
Test              test      own           : REQUEST request, int *flag, STATUS status
Testany           test      own           : int count, MPI_Request requests[], int *index, int *flag, STATUS status
Testall           test      own           : int count, MPI_Request requests[], int *flag, MPI_Status *statuses
Testsome          test      own           : int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses
Request_get_status test     own           : MPI_Request request, int *flag, STATUS status
Request_get_status_any test own           : int count, const MPI_Request requests[], int *index, int *flag, STATUS status
Request_get_status_all test own           : int count, const MPI_Request requests[], int *flag, MPI_Status *statuses
Request_get_status_some test own          : int incount, const MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses
Request_free      request   own           : REQUEST request
Cancel            request   own           : REQUEST request
Psend_init        request   other_persistent        : IN buf, {_PARTS}, int dest, int tag, COMM comm, INFO info, REQUEST request
Precv_init        request   other_persistent        : OUT buf, {_PARTS}, int source, int tag, COMM comm, INFO info, REQUEST request
Pready            request   region        : int partition, MPI_Request request
Pready_range      request   region        : int low, int high, MPI_Request request
Pready_list       request   region        : int length, int partitions[], MPI_Request request
Parrived          test      region        : MPI_Request request, int partition, int *flag
Grequest_start    request   other_request        : MPI_Grequest_query_function *query, MPI_Grequest_free_function *release, MPI_Grequest_cancel_function *cancel, void *state, REQUEST request
Grequest_complete request   region        : MPI_Request request
Buffer_attach     other     region        : OUT buffer, COUNT size
Buffer_detach     other     region        : OUT buffer, PLACE size
Buffer_flush      other     region        :
Buffer_iflush     other     other_request : REQUEST request
Comm_flush_buffer other     region        : COMM comm
Comm_iflush_buffer other    other_request : COMM comm, REQUEST request
Pack              other     region        : IN inbuf, COUNT incount, TYPE datatype, OUT outbuf, COUNT outsize, PLACE position, COMM comm
Unpack            other     region        : IN inbuf, COUNT insize, PLACE position, OUT outbuf, COUNT outcount, TYPE datatype, COMM comm
Pack_external     other     region        : const char datarep[], IN inbuf, COUNT incount, TYPE datatype, OUT outbuf, SPAN outsize, SPOT position
Unpack_external   other     region        : const char datarep[], IN inbuf, SPAN insize, SPOT position, OUT outbuf, COUNT outcount, TYPE datatype
"""

# Collectives stand here in their blocking form: MPI_Ibcast and MPI_Bcast_init follow from
# MPI_Bcast. Their rule is the operation, and how bytes follow from the arguments.
_SEND_BLOCK = "IN sendbuf, COUNT sendcount, TYPE sendtype"
_RECV_BLOCK = "OUT recvbuf, COUNT recvcount, TYPE recvtype"
_SEND_LISTS = "IN sendbuf, COUNTS sendcounts, DISPLS sdispls, TYPE sendtype"
_RECV_LISTS = "OUT recvbuf, COUNTS recvcounts, DISPLS displs, TYPE recvtype"
_RECV_LISTS_2 = "OUT recvbuf, COUNTS recvcounts, DISPLS rdispls, TYPE recvtype"
_SEND_TYPES = "IN sendbuf, COUNTS sendcounts, DISPLS sdispls, TYPES sendtypes"
_RECV_TYPES = "OUT recvbuf, COUNTS recvcounts, DISPLS rdispls, TYPES recvtypes"
_SEND_BYTES = "IN sendbuf, COUNTS sendcounts, const MPI_Aint sdispls[], TYPES sendtypes"
_RECV_BYTES = "OUT recvbuf, COUNTS recvcounts, const MPI_Aint rdispls[], TYPES recvtypes"
_REDUCTION = "IN sendbuf, OUT recvbuf, COUNT count, TYPE datatype, OP op"

_COLLECTIVES = f"""
Barrier           barrier        BARRIER     none      : COMM comm
Bcast             broadcast      BROADCAST   bcast     : OUT buffer, COUNT count, TYPE datatype, int root, COMM comm
Gather            gather         GATHER      gather    : {_SEND_BLOCK}, {_RECV_BLOCK}, int root, COMM comm
Gatherv           gather         GATHERV     gatherv   : {_SEND_BLOCK}, {_RECV_LISTS}, int root, COMM comm
Scatter           scatter        SCATTER     scatter   : {_SEND_BLOCK}, {_RECV_BLOCK}, int root, COMM comm
Scatterv          scatter        SCATTERV    scatterv  : IN sendbuf, COUNTS sendcounts, DISPLS displs, TYPE sendtype, {_RECV_BLOCK}, int root, COMM comm
Allgather         allgather      ALLGATHER   allgather : {_SEND_BLOCK}, {_RECV_BLOCK}, COMM comm
Allgatherv        allgather      ALLGATHERV  allgatherv : {_SEND_BLOCK}, {_RECV_LISTS}, COMM comm
Alltoall          alltoall       ALLTOALL    alltoall  : {_SEND_BLOCK}, {_RECV_BLOCK}, COMM comm
Alltoallv         alltoall       ALLTOALLV   alltoallv : {_SEND_LISTS}, {_RECV_LISTS_2}, COMM comm
Alltoallw         alltoall       ALLTOALLW   alltoallw : {_SEND_TYPES}, {_RECV_TYPES}, COMM comm
Reduce            reduce         REDUCE      reduce    : {_REDUCTION}, int root, COMM comm
Allreduce         allreduce      ALLREDUCE   allreduce : {_REDUCTION}, COMM comm
Reduce_scatter    reduce_scatter REDUCE_SCATTER reduce_scatter : IN sendbuf, OUT recvbuf, COUNTS recvcounts, TYPE datatype, OP op, COMM comm
Reduce_scatter_block reduce_scatter REDUCE_SCATTER_BLOCK reduce_scatter_block : IN sendbuf, OUT recvbuf, COUNT recvcount, TYPE datatype, OP op, COMM comm
Scan              scan           SCAN        allreduce : {_REDUCTION}, COMM comm
Exscan            exscan         EXSCAN      allreduce : {_REDUCTION}, COMM comm
Neighbor_allgather  neighbour    NEIGHBOUR   neighbour_allgather : {_SEND_BLOCK}, {_RECV_BLOCK}, COMM comm
Neighbor_allgatherv neighbour    NEIGHBOUR   neighbour_allgatherv : {_SEND_BLOCK}, {_RECV_LISTS}, COMM comm
Neighbor_alltoall   neighbour    NEIGHBOUR   neighbour_alltoall : {_SEND_BLOCK}, {_RECV_BLOCK}, COMM comm
Neighbor_alltoallv  neighbour    NEIGHBOUR   neighbour_alltoallv : {_SEND_LISTS}, {_RECV_LISTS_2}, COMM comm
Neighbor_alltoallw  neighbour    NEIGHBOUR   neighbour_alltoallw : {_SEND_BYTES}, {_RECV_BYTES}, COMM comm
"""

_EDGES = "INTS sources, INTS degrees, INTS destinations, INTS weights"
_MANAGEMENT = f"""
Init              init      own           : int *argc, char ***argv
Init_thread       init      own           : int *argc, char ***argv, int required, int *provided
Finalize          finalize  own           :
Abort             other     abort         : COMM comm, int errorcode
Pcontrol          other     own           : int level
Comm_dup          comm      new           : COMM comm, NEWCOMM newcomm
Comm_dup_with_info comm     new           : COMM comm, INFO info, NEWCOMM newcomm
Comm_idup         comm      idup          : COMM comm, NEWCOMM newcomm, REQUEST request
Comm_idup_with_info comm    idup          : COMM comm, INFO info, NEWCOMM newcomm, REQUEST request
Comm_split        comm      new           : COMM comm, int color, int key, NEWCOMM newcomm
Comm_split_type   comm      new           : COMM comm, int kind, int key, INFO info, NEWCOMM newcomm
Comm_create       comm      new           : COMM comm, GROUP group, NEWCOMM newcomm
Comm_create_group comm      new_group     : COMM comm, GROUP group, int tag, NEWCOMM newcomm
Cart_create       comm      new           : COMM comm, int ndims, INTS dims, INTS periods, int reorder, NEWCOMM newcomm
Cart_sub          comm      new           : COMM comm, INTS remain, NEWCOMM newcomm
Graph_create      comm      new           : COMM comm, int nnodes, INTS index, INTS edges, int reorder, NEWCOMM newcomm
Dist_graph_create comm      new           : COMM comm, int n, {_EDGES}, INFO info, int reorder, NEWCOMM newcomm
Dist_graph_create_adjacent comm new       : COMM comm, int indegree, INTS sources, INTS sourceweights, int outdegree, INTS destinations, INTS destweights, INFO info, int reorder, NEWCOMM newcomm
Intercomm_create  comm      new_group     : COMM comm, int leader, COMM peer_comm, int remote_leader, int tag, NEWCOMM newcomm
Intercomm_merge   comm      new           : COMM comm, int high, NEWCOMM newcomm
Comm_free         comm      own           : NEWCOMM comm
Comm_disconnect   comm      own           : NEWCOMM comm
Comm_set_name     comm      own           : COMM comm, const char *name
Comm_compare      comm      region        : COMM first, COMM second, int *result
Comm_spawn        comm      region        : const char *command, char *argv[], int maxprocs, INFO info, int root, COMM comm, NEWCOMM newcomm, int codes[]
Comm_accept       comm      region        : const char *port_name, INFO info, int root, COMM comm, NEWCOMM newcomm
Comm_connect      comm      region        : const char *port_name, INFO info, int root, COMM comm, NEWCOMM newcomm
Comm_join         comm      region        : int fd, NEWCOMM newcomm
Open_port         other     region        : INFO info, char *port_name
Close_port        other     region        : const char *port_name
Publish_name      other     region        : const char *service_name, INFO info, const char *port_name
Unpublish_name    other     region        : const char *service_name, INFO info, const char *port_name
Lookup_name       other     region        : const char *service_name, INFO info, char *port_name
Comm_group        comm      region        : COMM comm, MPI_Group *group
Group_union       comm      region        : GROUP first, GROUP second, MPI_Group *newgroup
Group_intersection comm     region        : GROUP first, GROUP second, MPI_Group *newgroup
Group_difference  comm      region        : GROUP first, GROUP second, MPI_Group *newgroup
Group_incl        comm      region        : GROUP group, int n, INTS ranks, MPI_Group *newgroup
Group_excl        comm      region        : GROUP group, int n, INTS ranks, MPI_Group *newgroup
Group_range_incl  comm      region        : GROUP group, int n, int ranges[][3], MPI_Group *newgroup
Group_range_excl  comm      region        : GROUP group, int n, int ranges[][3], MPI_Group *newgroup
Group_translate_ranks comm  region        : GROUP first, int n, INTS ranks, GROUP second, int others[]
Group_compare     comm      region        : GROUP first, GROUP second, int *result
Group_free        comm      region        : MPI_Group *group
Cart_map          comm      region        : COMM comm, int ndims, INTS dims, INTS periods, int *newrank
Graph_map         comm      region        : COMM comm, int nnodes, INTS index, INTS edges, int *newrank
Dims_create       comm      region        : int nnodes, int ndims, int dims[]
Reduce_local      other     region        : IN inbuf, OUT inoutbuf, COUNT count, TYPE datatype, OP op
Alloc_mem         other     region        : MPI_Aint size, INFO info, OUT baseptr
Free_mem          other     region        : OUT base
Type_commit       other     region        : MPI_Datatype *datatype
Type_free         other     region        : MPI_Datatype *datatype
Type_dup          other     region        : TYPE oldtype, MPI_Datatype *newtype
Type_contiguous   other     region        : COUNT count, TYPE oldtype, MPI_Datatype *newtype
Type_vector       other     region        : COUNT count, COUNT blocklength, COUNT stride, TYPE oldtype, MPI_Datatype *newtype
Type_create_hvector other   region        : COUNT count, COUNT blocklength, SPAN stride, TYPE oldtype, MPI_Datatype *newtype
Type_indexed      other     region        : COUNT count, COUNTS lengths, COUNTS displacements, TYPE oldtype, MPI_Datatype *newtype
Type_create_hindexed other  region        : COUNT count, COUNTS lengths, SPANS displacements, TYPE oldtype, MPI_Datatype *newtype
Type_create_indexed_block other region    : COUNT count, COUNT length, COUNTS displacements, TYPE oldtype, MPI_Datatype *newtype
Type_create_hindexed_block other region   : COUNT count, COUNT length, SPANS displacements, TYPE oldtype, MPI_Datatype *newtype
Type_create_struct other    region        : COUNT count, COUNTS lengths, SPANS displacements, TYPES types, MPI_Datatype *newtype
Type_create_subarray other  region        : int ndims, COUNTS sizes, COUNTS subsizes, COUNTS starts, int order, TYPE oldtype, MPI_Datatype *newtype
Type_create_darray other    region        : int size, int rank, int ndims, COUNTS gsizes, INTS distribs, INTS dargs, INTS psizes, int order, TYPE oldtype, MPI_Datatype *newtype
Type_create_resized other   region        : TYPE oldtype, SPAN lb, SPAN extent, MPI_Datatype *newtype
"""

_ORIGIN = "IN origin_addr, COUNT origin_count, TYPE origin_datatype"
_RESULT = "OUT result_addr, COUNT result_count, TYPE result_datatype"
_TARGET = "int target_rank, MPI_Aint target_disp, COUNT target_count, TYPE target_datatype"
_FETCH = "IN origin_addr, OUT result_addr, TYPE datatype, int target_rank, MPI_Aint target_disp"
_ONE_SIDED = f"""
Win_create        rma_sync  new_win       : OUT base, MPI_Aint size, UNIT unit, INFO info, COMM comm, MPI_Win *win
Win_allocate      rma_sync  new_win       : MPI_Aint size, UNIT unit, INFO info, COMM comm, OUT baseptr, MPI_Win *win
Win_allocate_shared rma_sync new_win      : MPI_Aint size, UNIT unit, INFO info, COMM comm, OUT baseptr, MPI_Win *win
Win_create_dynamic rma_sync new_win       : INFO info, COMM comm, MPI_Win *win
Win_free          rma_sync  own           : MPI_Win *win
Win_attach        rma       region        : WIN win, OUT base, MPI_Aint size
Win_detach        rma       region        : WIN win, IN base
Win_fence         rma_sync  fence         : int assertion, WIN win
Win_post          rma_sync  post          : GROUP group, int assertion, WIN win
Win_start         rma_sync  start         : GROUP group, int assertion, WIN win
Win_complete      rma_sync  complete      : WIN win
Win_wait          rma_sync  win_wait      : WIN win
Win_test          rma_sync  win_test      : WIN win, int *flag
Win_lock          rma_sync  lock          : int lock_type, int target_rank, int assertion, WIN win
Win_lock_all      rma_sync  lock_all      : int assertion, WIN win
Win_unlock        rma_sync  unlock        : int target_rank, WIN win
Win_unlock_all    rma_sync  unlock_all    : WIN win
Win_flush         rma_sync  region        : int target_rank, WIN win
Win_flush_all     rma_sync  region        : WIN win
Win_flush_local   rma_sync  region        : int target_rank, WIN win
Win_flush_local_all rma_sync region       : WIN win
Win_sync          rma_sync  region        : WIN win
Put               rma       put           : {_ORIGIN}, {_TARGET}, WIN win
Get               rma       get           : OUT origin_addr, COUNT origin_count, TYPE origin_datatype, {_TARGET}, WIN win
Accumulate        rma       put           : {_ORIGIN}, {_TARGET}, OP op, WIN win
Get_accumulate    rma       fetch         : {_ORIGIN}, {_RESULT}, {_TARGET}, OP op, WIN win
Fetch_and_op      rma       fetch_one     : {_FETCH}, OP op, WIN win
Compare_and_swap  rma       fetch_one     : IN origin_addr, IN compare_addr, OUT result_addr, TYPE datatype, int target_rank, MPI_Aint target_disp, WIN win
Rput              rma       put           : {_ORIGIN}, {_TARGET}, WIN win, REQUEST request
Rget              rma       get           : OUT origin_addr, COUNT origin_count, TYPE origin_datatype, {_TARGET}, WIN win, REQUEST request
Raccumulate       rma       put           : {_ORIGIN}, {_TARGET}, OP op, WIN win, REQUEST request
Rget_accumulate   rma       fetch         : {_ORIGIN}, {_RESULT}, {_TARGET}, OP op, WIN win, REQUEST request
"""

_OPEN_FILES = """
File_open         io        file_open     : COMM comm, const char *filename, int amode, INFO info, MPI_File *file
File_close        io        file_close    : MPI_File *file
File_delete       io        region        : const char *filename, INFO info
File_set_size     io        region        : FILE file, MPI_Offset size
File_preallocate  io        region        : FILE file, MPI_Offset size
File_get_size     io        region        : FILE file, MPI_Offset *size
File_set_view     io        region        : FILE file, MPI_Offset disp, TYPE etype, TYPE filetype, const char *datarep, INFO info
File_set_atomicity io       region        : FILE file, int flag
File_sync         io        region        : FILE file
File_seek         io        region        : FILE file, MPI_Offset offset, int whence
File_seek_shared  io        region        : FILE file, MPI_Offset offset, int whence
"""
# Of read and write, whose buffers are OUT and IN.
_TRANSFERS = """
File_{0}          io        {0}           : FILE file, {1} buf, COUNT count, TYPE datatype, STATUS status
File_{0}_all      io        {0}           : FILE file, {1} buf, COUNT count, TYPE datatype, STATUS status
File_{0}_at       io        {0}           : FILE file, MPI_Offset offset, {1} buf, COUNT count, TYPE datatype, STATUS status
File_{0}_at_all   io        {0}           : FILE file, MPI_Offset offset, {1} buf, COUNT count, TYPE datatype, STATUS status
File_{0}_shared   io        {0}           : FILE file, {1} buf, COUNT count, TYPE datatype, STATUS status
File_{0}_ordered  io        {0}           : FILE file, {1} buf, COUNT count, TYPE datatype, STATUS status
File_i{0}         io        i{0}          : FILE file, {1} buf, COUNT count, TYPE datatype, REQUEST request
File_i{0}_all     io        i{0}          : FILE file, {1} buf, COUNT count, TYPE datatype, REQUEST request
File_i{0}_at      io        i{0}          : FILE file, MPI_Offset offset, {1} buf, COUNT count, TYPE datatype, REQUEST request
File_i{0}_at_all  io        i{0}          : FILE file, MPI_Offset offset, {1} buf, COUNT count, TYPE datatype, REQUEST request
File_i{0}_shared  io        i{0}          : FILE file, {1} buf, COUNT count, TYPE datatype, REQUEST request
File_{0}_all_begin io       region        : FILE file, {1} buf, COUNT count, TYPE datatype
File_{0}_all_end  io        {0}           : FILE file, {1} buf, STATUS status
File_{0}_at_all_begin io    region        : FILE file, MPI_Offset offset, {1} buf, COUNT count, TYPE datatype
File_{0}_at_all_end io      {0}           : FILE file, {1} buf, STATUS status
File_{0}_ordered_begin io   region        : FILE file, {1} buf, COUNT count, TYPE datatype
File_{0}_ordered_end io     {0}           : FILE file, {1} buf, STATUS status
"""
_FILES = _OPEN_FILES + _TRANSFERS.format("read", "OUT") + _TRANSFERS.format("write", "IN")

# What MPI had before version 4. These functions are in every MPI, so that the preloaded library
# may offer them; whoever asks whether one of the others is there must not be told a lie.
_SINCE_4 = (
    *("_c", "_init", "Comm_idup_with_info", "Isendrecv", "Isendrecv_replace"),
    *("Psend_init", "Precv_init", "Pready", "Pready_range", "Pready_list", "Parrived"),
    *("Request_get_status_any", "Request_get_status_all", "Request_get_status_some"),
    *("Buffer_flush", "Buffer_iflush", "Comm_flush_buffer", "Comm_iflush_buffer"),
    # Of MPI 3.1, but not in every MPI that says so.
    *("File_iread_all", "File_iwrite_all", "File_iread_at_all", "File_iwrite_at_all"),
)
_INIT_BEFORE_4 = ("Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Recv_init")


@dataclass(frozen=True)
class Function:
    """An MPI function."""

    name: str  # Without ``MPI_``
    role: str  # Of its region
    # What its wrapper does, with the words that follow the rule's name in the table.
    rule: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]  # Names and C declarations, in order
    shown: str  # Name of its region: large-count forms and plain ones are one region

    @property
    def everywhere(self) -> bool:
        """Whether every MPI has it."""
        if self.name in _INIT_BEFORE_4:
            return True
        return not (self.name in _SINCE_4 or self.name.endswith(("_c", "_init")))

    @property
    def declaration(self) -> str:
        """Its arguments in C."""
        if self.name == "Pcontrol":
            return "const int level, ..."
        return ", ".join(text for _, text in self.arguments) or "void"

    @property
    def call(self) -> str:
        """The arguments' names, to hand them on."""
        return ", ".join(name for name, _ in self.arguments)


def _declared(text: str, large: bool) -> tuple[str, str]:
    """Name and C declaration of an argument of the table."""
    word, _, name = text.rpartition(" ")
    word = word.strip()
    if word in _LARGE:
        return name, _LARGE[word][large].format(name)
    if word in _SHORT:
        return name, _SHORT[word].format(name)
    bare = name.lstrip("*").split("[")[0]
    return bare, text


def _entries(head: list[str], arguments: str) -> list[Function]:
    """A function of the table, and its large-count form."""
    name, role, *rule = head
    listed = [part.strip() for part in arguments.split(",") if part.strip()]
    forms = [False]
    if any(text.rpartition(" ")[0] in _LARGE for text in listed):
        forms.append(True)
    return [
        Function(
            name + ("_c" if large else ""),
            role,
            tuple(rule),
            tuple(_declared(text, large) for text in listed),
            "MPI_" + name,
        )
        for large in forms
    ]


def _lines(table: str) -> list[tuple[list[str], str]]:
    lines = []
    for line in filter(None, table.splitlines()):
        head, _, arguments = line.partition(" : ")
        lines.append((head.rstrip(" :").split(), arguments))
    return lines


def functions() -> list[Function]:
    """All functions that are measured, large-count and non-blocking forms included."""
    functions_listed: list[Function] = []
    for table in (_POINT_TO_POINT, _MANAGEMENT, _ONE_SIDED, _FILES):
        for head, arguments in _lines(table):
            functions_listed += _entries(head, arguments)
    for (name, role, operation, payload), arguments in _lines(_COLLECTIVES):
        rule = [operation, payload]
        functions_listed += _entries([name, role, "collective", *rule], arguments)
        started = [f"I{name[0].lower()}{name[1:]}", "icollective", "icollective", *rule]
        functions_listed += _entries(started, f"{arguments}, REQUEST request")
        kept = [f"{name}_init", "request", "collective_init", *rule]
        functions_listed += _entries(kept, f"{arguments}, INFO info, REQUEST request")
    return functions_listed
