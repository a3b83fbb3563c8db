/* What a trace holds: shared by the tracer that writes it and the replay that reads it.
 *
 * A file of events is a header of 64 bytes and a stream of 64-bit little-endian words. The first
 * word of an event is never zero; a zero word ends the stream, so that a file that was laid out
 * in advance and then left by a crash reads up to its last whole event. A writer stores the
 * further words of an event first and its first word last.
 *
 *   bits  0..5    kind, one of HS_EVENT_*
 *   bits  6..31   ticks since the event before it in this file (HS_MOST_DELTA at most)
 *   bits 32..63   payload
 *
 * Where more ticks have passed, HS_EVENT_TIME comes first: bits 6..63 of it are ticks since the
 * epoch of the file's header. The first event of a file counts from the epoch.
 * A peer is a rank of the world; a communicator, window, group, request, node or region is a
 * number of the rank's own, explained in its definitions.
 */
#ifndef HALOSCOPE_EVENTS_H
#define HALOSCOPE_EVENTS_H

#ifndef __cplusplus
#include <stdint.h>
#endif

#define HS_MAGIC 0x0a31564556454c48ull /* "HLEVEV1\n", read as a little-endian word */
#define HS_HEADER_WORDS 8
#define HS_MOST_DELTA ((1u << 26) - 1)
#define HS_NOBODY 0xffffffffu /* a peer that is none: MPI_PROC_NULL, no root */

/* Header words: 0 magic, 1 rank | location << 32, 2 epoch in ticks, 3 ticks per second as the
 * bits of a double, 4 to 7 zero. */

enum hs_event {
  HS_EVENT_END = 0,
  HS_EVENT_TIME = 1,       /* no payload: bits 6..63 are absolute ticks since the epoch */
  HS_EVENT_ENTER = 2,      /* payload: node of the call tree */
  HS_EVENT_LEAVE = 3,      /* payload: the node that is left */
  HS_EVENT_SEND = 4,       /* payload: receiver; words: comm | tag << 32, bytes */
  HS_EVENT_ISEND = 5,      /* as SEND; word: request */
  HS_EVENT_ISEND_DONE = 6, /* payload: request */
  HS_EVENT_RECV = 7,       /* payload: sender; words: comm | tag << 32, bytes */
  HS_EVENT_IRECV = 8,      /* payload: request; the receive is posted */
  HS_EVENT_IRECV_DONE = 9, /* payload: sender; words: comm | tag << 32, bytes, request */
  HS_EVENT_CANCELLED = 10, /* payload: request */
  HS_EVENT_COLLECTIVE = 11,  /* payload: comm; words: operation | root << 32, bytes sent,
                                bytes received. Stands before the LEAVE of its call */
  HS_EVENT_ICOLLECTIVE = 12, /* as COLLECTIVE, when it is started; word: request */
  HS_EVENT_ICOLLECTIVE_DONE = 13, /* payload: request */
  HS_EVENT_PAUSE = 14,     /* nothing is recorded from here ... */
  HS_EVENT_RESUME = 15,    /* ... to here */
  HS_EVENT_COUNTER = 16,   /* payload: counter; word: its value, an unsigned integer */
  HS_EVENT_PUT = 17,       /* payload: target; words: window, bytes */
  HS_EVENT_GET = 18,       /* as PUT; accumulating calls are PUT, fetching ones GET */
  HS_EVENT_POST = 19,      /* payload: window; word: group. MPI_Win_post */
  HS_EVENT_START = 20,     /* payload: window; word: group. MPI_Win_start */
  HS_EVENT_COMPLETE = 21,  /* payload: window. MPI_Win_complete */
  HS_EVENT_WAIT = 22,      /* payload: window. MPI_Win_wait, or a true MPI_Win_test */
  HS_EVENT_LOCK = 23,      /* payload: window; word: target (HS_NOBODY: all) | exclusive << 32 */
  HS_EVENT_UNLOCK = 24,    /* payload: window; word: target (HS_NOBODY: all) */
  HS_EVENT_FORK = 25,      /* payload: threads of the team that is started */
  HS_EVENT_JOIN = 26,      /* payload: none */
  HS_EVENT_FILE = 27,      /* MPI-IO; payload: 0 read, 1 written; word: bytes, as far as known */
  HS_EVENT_SKIPPED = 28,   /* what was not recorded but counts in the order of what was; belongs to
                                no call; payload: peer, HS_NOBODY for none; words: comm | tag << 32,
                                how many | HS_SKIPPED_*, request that is over with it or HS_NOBODY */
  /* Of GPUs, on locations that are streams (kernels and copies are ENTER and LEAVE there): */
  HS_EVENT_LAUNCH = 32,    /* on the host; payload: location of the stream, or HS_NOBODY where
                                the call does not tell it; word: correlation */
  HS_EVENT_EXECUTE = 33,   /* on a stream, after its ENTER; payload: correlation */
  HS_EVENT_COPY = 34,      /* on a stream; payload: direction (HS_COPY_*); word: bytes */
  HS_EVENT_DEVICE_WAIT = 35, /* on the host, before its LEAVE; payload: location of the stream
                                that was waited for, or HS_NOBODY for all of them */
  HS_EVENT_KINDS = 36
};

enum hs_copy { HS_COPY_TO_DEVICE = 1, HS_COPY_TO_HOST = 2, HS_COPY_WITHIN = 3, HS_COPY_PEER = 4,
               HS_COPY_FILL = 5 };

/* Collective operations, by the way that data flows. */
enum hs_operation {
  HS_OP_BARRIER = 1,
  HS_OP_BROADCAST = 2,     /* one to all: root */
  HS_OP_SCATTER = 3,       /* one to all */
  HS_OP_SCATTERV = 4,
  HS_OP_REDUCE = 5,        /* all to one: root */
  HS_OP_GATHER = 6,
  HS_OP_GATHERV = 7,
  HS_OP_ALLREDUCE = 8,     /* all to all */
  HS_OP_ALLGATHER = 9,
  HS_OP_ALLGATHERV = 10,
  HS_OP_ALLTOALL = 11,
  HS_OP_ALLTOALLV = 12,
  HS_OP_ALLTOALLW = 13,
  HS_OP_REDUCE_SCATTER = 14,
  HS_OP_REDUCE_SCATTER_BLOCK = 15,
  HS_OP_SCAN = 16,         /* lower ranks to higher ones */
  HS_OP_EXSCAN = 17,
  HS_OP_NEIGHBOUR = 18,    /* neighbourhood collectives: no wait pattern of their own */
  HS_OP_INIT = 19,         /* MPI_Init, on the world */
  HS_OP_FINALIZE = 20,     /* MPI_Finalize, on the world */
  HS_OP_CREATE = 21,       /* creation of communicators, windows, files */
  HS_OP_FENCE = 22,        /* MPI_Win_fence, on the window's communicator */
  HS_OP_FREE = 23,
  HS_OPERATIONS = 24
};

/* Second word of HS_EVENT_SKIPPED. Without one of the flags nothing but the request is over. With HS_SKIPPED_UNSURE the number is not known: from here on nobody knows which messages of
 * the rank on this communicator (with HS_SKIPPED_SENT: to this peer) belong together. Without a
 * peer and flags the number is one of collective operations. With HS_SKIPPED_EPOCH the event is a POST,
 * START, COMPLETE or WAIT, whose kind stands in place of the number, the window of the peer, and the
 * group of the first word. */
#define HS_SKIPPED_SENT (1ull << 63)
#define HS_SKIPPED_RECEIVED (1ull << 62)
#define HS_SKIPPED_UNSURE (1ull << 61)
#define HS_SKIPPED_EPOCH (1ull << 60)
#define HS_SKIPPED_COUNT ((1ull << 48) - 1)

/* Bytes of a received message where MPI does not report them: use those sent. */
#define HS_BYTES_UNKNOWN ((1ull << 48) - 1)

/* Further words of each kind after its first. */
#define HS_WORDS_OF_KINDS                                                                     \
  { 0, 0, 0, 0, 2, 3, 0, 2, 0, 3, 0, 3, 4, 0, 0, 0, 1, 2, 2, 1, 1, 0, 0, 1, 1, 0, 0, 1, 3, 0, \
    0, 0, 1, 0, 1, 0 }

#endif
