// What every kind of replay is handed: the run's locations with their words in memory, and what
// the ranks' own numbers mean. Filled by inputs.py; the layouts must agree.
//
// Replays are compiled as C++ when first needed (inputs.py) and called through ctypes.
#pragma once
#include <cstdint>

#include "decoder.h"

extern "C" {

// Roles that replays tell apart; inputs.py gives each node one of these.
enum Role : int32_t {
  ROLE_NONE = 0,      // not MPI: program, functions, regions
  ROLE_MPI = 1,       // MPI without a role of its own below
  ROLE_P2P = 2,       // sends, receives, waits: blocking completion
  ROLE_SENDRECV = 3,  // one call that sends and receives
  ROLE_TEST = 4,      // completes without blocking
  ROLE_COLLECTIVE = 5,
  ROLE_RMA = 6,
  ROLE_RMA_SYNC = 7,
  ROLE_MEASUREMENT = 8,  // the tracer's own work
  ROLE_GPU = 9,          // host calls of the GPU's driver, and work on streams
  ROLE_OPENMP = 10,
};

struct RunInput {
  const LocationInput *locations;  // by rank, then number
  int64_t location_count;
  int32_t rank_count;              // ranks of the run; some may have no location here
  int32_t threads;                 // to use
  const int32_t *node_parents;     // by the run's node, -1 for the root
  const int32_t *node_roles;       // Role
  const int32_t *node_entered;     // nearest ancestor that is entered by an event of its own
  int64_t node_count;
  const int32_t *comm_starts;      // members of the run's communicators, as ranks of the world
  const int32_t *comm_members;
  int64_t comm_count;
};
}
