/* Callers of an MPI call, found on the stack: call paths of programs that were not recompiled.
 *
 * The stack is walked by the compiler's unwinder, which needs no frame pointers, once for each
 * place and depth of the stack from which a call comes. The walk is kept with the return addresses
 * that it met and where on the stack they lay; when a call comes from the same place at the same
 * depth, and each of them is still there, the result is the same. Frames whose size changes from
 * call to call (alloca, arrays of variable length) are told apart by their places; the walk could
 * only be wrong where an old return address was left over in just such a frame's unused room.
 * Where return addresses do not lie below the frame (other processors than x86-64), each call is
 * walked. A frame counts up to the innermost region that the program itself has entered.
 */
#include "location.h"

#include <dlfcn.h>
#include <string.h>
#include <unwind.h>

enum { SLOTS = 1024 };

struct frame {
  const char *stack; /* stack pointer of the frame while it calls */
  const void *address;
};

struct unwind_slot {
  const void *site;
  const char *frame;
  struct node *around, *result;
  uint32_t count;
  struct frame *frames;
};

typedef _Unwind_Reason_Code walker(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr address_getter(struct _Unwind_Context *);
typedef _Unwind_Word stack_getter(struct _Unwind_Context *);

static walker *walk_stack;
static address_getter *address_of;
static stack_getter *stack_of;
static struct address_table *callers;

/* The unwinder comes with the compiler's library, which most programs have loaded anyway. */
void unwind_ready(void) {
  void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
  if (library) {
    stack_of = (stack_getter *)(uintptr_t)dlsym(library, "_Unwind_GetCFA");
    address_of = (address_getter *)(uintptr_t)dlsym(library, "_Unwind_GetIP");
    walk_stack = (walker *)(uintptr_t)dlsym(library, "_Unwind_Backtrace");
  }
  if (!walk_stack || !address_of || !stack_of) {
    hs_say_once("libgcc_s.so.1 is missing, so callers of MPI functions are not recorded");
    hs_recorder.unwind = 0;
  }
}

/* --- frames -------------------------------------------------------------------------------------- */

static int begins_with_any(const char *name, const char *const *beginnings) {
  for (; *beginnings; beginnings++)
    if (strncmp(name, *beginnings, strlen(*beginnings)) == 0) return 1;
  return 0;
}

/* Start-up code, runtimes, MPI's insides, interpreters: not the user's program. */
static int is_no_part_of_program(const struct function *function) {
  static const char *const objects[] = {
      "libc.so",   "libc-2",    "libpthread", "ld-linux", "ld-2",      "ld-musl", "libmpi",
      "libpmpi",   "libopen-",  "libmca",     "libuc",    "libfabric", "libgomp", "libomp",
      "libiomp",   "libpython", "python3",    "libffi",   "_ctypes",   NULL};
  static const char *const names[] = {"_start", "__libc_start", "__libc_csu", NULL};
  Dl_info own;
  if (dladdr((const void *)(uintptr_t)is_no_part_of_program, &own) &&
      own.dli_fbase == function->base)
    return 1;
  return begins_with_any(function->object, objects) || begins_with_any(function->name, names);
}

/* Region of the function that an address returns to; HS_FILTERED where it does not count. */
static uint32_t region_of(const void *address) {
  const struct address_known *known = addresses_find(&callers, address);
  if (LIKELY(known)) return known->region;
  struct function function;
  uint32_t region = HS_FILTERED;
  /* A call may be a function's last instruction: look up the byte before the return address. */
  if (symbols_find((const char *)address - 1, &function) && !is_no_part_of_program(&function))
    region = definitions_region(function.name, function.linked, "unwound", "other",
                                function.object, 0);
  addresses_keep(&callers, (struct address_known){address, region, NULL});
  return region;
}

struct walk {
  const void *site;
  const char *most; /* stack pointer of the innermost region of the program, or NULL */
  struct frame *frames;
  uint32_t count, room;
  int reached_site; /* the call itself has been met */
  int ended;    /* the last frame is that of the innermost region: it only says where it calls */
  int in_place; /* return addresses lie where they can be looked at again */
};

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *its_walk) {
  struct walk *walk = its_walk;
  const void *address = (const void *)(uintptr_t)address_of(context);
  const char *stack = (const char *)(uintptr_t)stack_of(context);
  if (!address) return _URC_END_OF_STACK;
  walk->reached_site |= address == walk->site;
  if (!walk->reached_site) return _URC_NO_REASON;
  if (walk->ended || walk->count == walk->room) return _URC_END_OF_STACK;
  walk->ended = walk->most && stack >= walk->most;
#if defined(__x86_64__)
  walk->in_place &= *(const void *const *)(const void *)(stack - sizeof(void *)) == address;
#else
  walk->in_place = 0;
#endif
  walk->frames[walk->count++] = (struct frame){stack, address};
  return _URC_NO_REASON;
}

static const char *innermost_frame(const struct node *node) {
  for (; node; node = node->outer)
    if (node->frame) return node->frame;
  return NULL;
}

/* --- nodes ----------------------------------------------------------------------------------------- */

static struct node *node_of(struct location *me, const struct walk *walk) {
  struct node *node = me->current;
  const struct frame *frames = walk->frames;
  uint32_t count = walk->count, named = count - (uint32_t)walk->ended;
  /* Outermost first. A frame beyond them only gives the call site of the last one. */
  for (uint32_t i = named > hs_recorder.unwind ? hs_recorder.unwind : named; i-- > 0;) {
    uint32_t region = region_of(frames[i].address);
    if (region == HS_FILTERED) continue;
    const void *site = i + 1 < count ? frames[i + 1].address : NULL;
    if (site && region_of(site) == HS_FILTERED) site = NULL;
    struct node *child = calltree_find(me, node, region, site);
    if (!child) break;
    node = child;
  }
  return node;
}

static int still_there(const struct unwind_slot *slot) {
  for (uint32_t i = 0; i < slot->count; i++)
    if (*(const void *const *)(const void *)(slot->frames[i].stack - sizeof(void *)) !=
        slot->frames[i].address)
      return 0;
  return 1;
}

/* The node of the function that calls, below the current one. */
struct node *unwind_callers(struct location *me, const void *site, const char *frame) {
  if (!me->unwound) me->unwound = hs_keep(SLOTS * sizeof *me->unwound);
  if (!me->unwound || !site) return me->current;
  uint64_t hash = ((uintptr_t)site ^ (uintptr_t)frame << 20 ^ (uintptr_t)me->current) *
                  0x9e3779b97f4a7c15ull;
  struct unwind_slot *slot = &me->unwound[hash >> 32 & (SLOTS - 1)];
  if (slot->result && slot->site == site && slot->frame == frame && slot->around == me->current &&
      still_there(slot))
    return slot->result;
  if (!slot->frames) slot->frames = hs_keep((hs_recorder.unwind + 1) * sizeof *slot->frames);
  if (!slot->frames) return me->current;
  struct walk walk = {site, innermost_frame(me->current), slot->frames, 0,
                      hs_recorder.unwind + 1, 0, 0, 1};
  walk_stack(on_frame, &walk);
  struct node *node = node_of(me, &walk);
  *slot = (struct unwind_slot){site, frame, me->current, walk.in_place ? node : NULL,
                               walk.count, slot->frames};
  return node;
}
