/* Definitions of a rank: regions, call-tree nodes and other records, one a line.
 *
 * The file has a name of the process until the rank is known. Its first line has a fixed length,
 * filled with blanks, so that it can be written again with the rank. Blocks are reserved for it,
 * so that a full disk does not keep the recorder from saying that the disk is full. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 16384, MOST_NAME = 2000, RESERVE = 1 << 18 };

struct region {
  const char *name, *paradigm, *role, *file;
  int line;
  uint32_t number;
  uint64_t hash;
};

struct numbered_node {
  uint32_t parent, region, number, used;
  const void *site;
};

static struct file definitions = {-1, 0, 0};
static uint64_t written;
static int full;

static struct region **regions;
static uint32_t region_mask, region_entries, region_count;
static struct numbered_node *nodes;
static uint32_t node_mask, node_count;

static int write_at(const char *content, size_t length, uint64_t place) {
  if (!file_may_grow_to(place + length)) return 0;
  while (length) {
    ssize_t done = pwrite(definitions.fd, content, length, (off_t)place);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return 0;
    content += done;
    length -= (size_t)done;
    place += (uint64_t)done;
  }
  return 1;
}

void definitions_line(const char *content, size_t length) {
  char path[4096];
  if (full || definitions.inode == 0) return;
  file_path(path, sizeof path, "def", -1);
  if (!file_ready(&definitions, path)) return;
  if (write_at(content, length, written)) {
    written += length;
  } else {
    full = 1;
    if (ftruncate(definitions.fd, (off_t)written)) return;
  }
}

void definitions_format(const char *format, ...) {
  char room[1024];
  struct text text;
  va_list values;
  text_open(&text, room, sizeof room - 1);
  va_start(values, format);
  text_vformat(&text, format, values);
  va_end(values);
  *text.at++ = '\n';
  definitions_line(room, (size_t)(text.at - room));
}

enum { MOST_CORES = 8192, MOST_CORE_LIST = 256 };

/* Cores that the process may run on: their number, and their list as Linux writes it ("0-3,8"),
 * empty where it is too long. */
static void put_cores(struct text *text) {
  static cpu_set_t allowed[MOST_CORES / CPU_SETSIZE];
  static char list[MOST_CORE_LIST];
  struct text ranges;
  int count = 0;
  text_open(&ranges, list, sizeof list);
  /* That of the first thread: the one that a launcher has bound. */
  if (sched_getaffinity(hs_recorder.process, sizeof allowed, allowed) != 0) return;
  for (int core = 0, first = -1; core <= MOST_CORES; core++) {
    const int is_allowed = core < MOST_CORES && CPU_ISSET_S(core, sizeof allowed, allowed);
    count += is_allowed;
    if (is_allowed && first < 0) first = core;
    if (is_allowed || first < 0) continue;
    text_format(&ranges, list[0] ? ",%d" : "%d", first);
    if (core - 1 > first) text_format(&ranges, "-%d", core - 1);
    first = -1;
  }
  if (ranges.at == ranges.end) list[0] = 0;
  text_format(text, ", \"cores\": %d, \"core_list\": \"%s\", \"host_cores\": %ld", count, list,
              sysconf(_SC_NPROCESSORS_ONLN));
}

void definitions_opening(double rate) {
  static char room[OPENING + 1];
  char host[256] = "", program[512] = "";
  char path[4096];
  struct text text;
  gethostname(host, sizeof host - 1);
  ssize_t length = readlink("/proc/self/exe", program, 400);
  if (length < 0) program[0] = 0;
  text_open(&text, room, sizeof room);
  text_format(&text, "{\"rank\": %d, \"size\": %d, \"format\": 2, \"host\": \"%s\", \"pid\": %d", hs_recorder.rank,
              hs_recorder.size, host, (int)hs_recorder.process);
  put_cores(&text);
  text_format(&text,
              ", \"ticks_per_second\": %f, \"clock\": \"%s\", \"epoch\": %lu, \"mpi\": \"%s\", "
              "\"program\": \"%s\", \"mode\": \"%s\", \"threads\": \"%s\"}",
              rate, hs_recorder.tsc ? "tsc" : "monotonic", clock_epoch() - clock_base(), hs_recorder.mpi,
              program, hs_recorder.mode == MODE_TRACE ? "trace" : "profile", hs_recorder.threads);
  while (text.at < room + OPENING - 1) text_put(&text, " ");
  text_put(&text, "\n");
  file_path(path, sizeof path, "def", -1);
  if (!file_ready(&definitions, path)) return;
  if (write_at(room, OPENING, 0) && written < OPENING) written = OPENING;
}

int definitions_open(void) {
  char path[4096], message[4400];
  file_path(path, sizeof path, "def", -1);
  if (!file_open_new(&definitions, path)) {
    snprintf(message, sizeof message,
             "%s: the file cannot be made (%s), nothing is recorded; give another folder (haloscope "
             "measure --out)",
             path, strerror(errno));
    hs_say_once(message);
    return 0;
  }
  /* Without room reserved, saying that the disk is full may fail, too: no harm done. */
  int reserved = fallocate(definitions.fd, FALLOC_FL_KEEP_SIZE, 0, RESERVE);
  (void)reserved;
  definitions_opening(clock_rate());
  if (written == OPENING) return 1;
  snprintf(message, sizeof message,
           "%s: the file cannot be written (disk full or limit of file sizes reached), nothing is "
           "recorded",
           path);
  hs_say_once(message);
  return 0;
}

void definitions_close(void) {
  if (definitions.fd < 0) return;
  if (ftruncate(definitions.fd, (off_t)written) == 0) close(definitions.fd);
  definitions.fd = -1;
  definitions.inode = 0;
}

void hs_define(const char *line) {
  char room[LINE];
  const size_t length = strlen(line);
  if (!here()) return;
  hs_lock();
  if (hs_recorder.state != ON) {
    hs_unlock();
    return;
  }
  if (length < sizeof room) {
    memcpy(room, line, length);
    room[length] = '\n';
    definitions_line(room, length + 1);
  } else {
    definitions_line(line, length);
    definitions_line("\n", 1);
  }
  hs_unlock();
}

void definitions_lost(const char *reason, const struct location *where) {
  if (where)
    definitions_format("{\"lost\": \"%s\", \"location\": %u, \"at\": %lu}", reason, where->number,
                       where->last - clock_base());
  else
    definitions_format("{\"lost\": \"%s\"}", reason);
}

/* --- regions ----------------------------------------------------------------------------- */

static uint64_t hash_of(const char *const *texts, size_t count, uint64_t hash) {
  for (size_t i = 0; i < count; i++)
    for (const char *c = texts[i];; c++) {
      hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
      if (!*c) break;
    }
  return hash ^ hash >> 29;
}

static const char *kept(const char *text) {
  size_t length = strlen(text);
  if (length > MOST_NAME) length = MOST_NAME;
  char *room = hs_keep(length + 1);
  if (!room) return "";
  memcpy(room, text, length);
  return room;
}

static int grow_regions(void) {
  uint32_t mask = regions ? region_mask * 2 + 1 : 255;
  struct region **larger = hs_keep((mask + 1ul) * sizeof *larger);
  if (!larger) return 0;
  for (uint32_t i = 0; regions && i <= region_mask; i++)
    if (regions[i]) {
      uint32_t slot = (uint32_t)regions[i]->hash & mask;
      while (larger[slot]) slot = (slot + 1) & mask;
      larger[slot] = regions[i];
    }
  regions = larger;
  region_mask = mask;
  return 1;
}

static void record_region(const struct region *region) {
  char room[LINE];
  struct text text;
  text_open(&text, room, sizeof room);
  text_format(&text,
              "{\"region\": %u, \"name\": \"%s\", \"paradigm\": \"%s\", \"role\": \"%s\", \"file\": \"%s\", "
              "\"line\": %d}\n",
              region->number, region->name, region->paradigm, region->role, region->file, region->line);
  definitions_line(text.begin, (size_t)(text.at - text.begin));
}

uint32_t hs_region(const char *name, const char *paradigm, const char *role, const char *file,
                   int line) {
  if (!here() || hs_recorder.state != ON) return HS_FILTERED;
  return definitions_region(name, NULL, paradigm, role, file, line);
}

/* `plain` is another form of the name that filters may mean, or NULL. */
uint32_t definitions_region(const char *name, const char *plain, const char *paradigm,
                            const char *role, const char *file, int line) {
  char shortened[MOST_NAME + 1] = "";
  strncat(shortened, name ? name : "", MOST_NAME);
  if (!paradigm) paradigm = "user";
  if (!role) role = "other";
  if (!file) file = "";
  const char *texts[] = {shortened, paradigm, role, file};
  uint64_t hash = hash_of(texts, 4, 0xcbf29ce484222325ull + (uint64_t)line);
  uint32_t number = HS_FILTERED;
  hs_lock();
  if ((regions && region_entries * 2 < region_mask) || grow_regions()) {
    uint32_t slot = (uint32_t)hash & region_mask;
    struct region *region;
    for (; (region = regions[slot]); slot = (slot + 1) & region_mask)
      if (region->hash == hash && region->line == line && strcmp(region->name, shortened) == 0 &&
          strcmp(region->paradigm, paradigm) == 0 && strcmp(region->role, role) == 0 &&
          strcmp(region->file, file) == 0)
        break;
    if (!region && (region = hs_keep(sizeof *region))) {
      *region = (struct region){kept(shortened), kept(paradigm), kept(role), kept(file),
                                line,            HS_FILTERED,    hash};
      int is_phase = hs_recorder.phase[0] && strcmp(shortened, hs_recorder.phase) == 0;
      int own = strcmp(paradigm, "program") == 0 || strcmp(paradigm, "measurement") == 0;
      if (own || is_phase || !environment_filters(shortened, plain)) {
        region->number = region_count++;
        if (is_phase && hs_recorder.phase_region == HS_FILTERED)
          hs_recorder.phase_region = region->number;
        record_region(region);
      }
      regions[slot] = region;
      region_entries++;
    }
    if (region) number = region->number;
  }
  hs_unlock();
  return number;
}

/* --- nodes ------------------------------------------------------------------------------- */

static uint32_t place_of(uint32_t parent, uint32_t region, const void *site) {
  uint64_t hash = ((uint64_t)parent << 32 | region) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (uintptr_t)site) * 0xff51afd7ed558ccdull;
  return (uint32_t)(hash >> 32);
}

static int grow_nodes(void) {
  uint32_t mask = nodes ? node_mask * 2 + 1 : 1023;
  struct numbered_node *larger = hs_keep((mask + 1ul) * sizeof *larger);
  if (!larger) return 0;
  for (uint32_t i = 0; nodes && i <= node_mask; i++)
    if (nodes[i].used) {
      uint32_t slot = place_of(nodes[i].parent, nodes[i].region, nodes[i].site) & mask;
      while (larger[slot].used) slot = (slot + 1) & mask;
      larger[slot] = nodes[i];
    }
  nodes = larger;
  node_mask = mask;
  return 1;
}

/* Lock held: the slot of a call path, used or not; NULL without memory. */
static struct numbered_node *slot_of(uint32_t parent, uint32_t region, const void *site) {
  if ((!nodes || node_count * 2 >= node_mask) && !grow_nodes()) return NULL;
  uint32_t slot = place_of(parent, region, site) & node_mask;
  struct numbered_node *entry = &nodes[slot];
  while (entry->used &&
         (entry->parent != parent || entry->region != region || entry->site != site)) {
    slot = (slot + 1) & node_mask;
    entry = &nodes[slot];
  }
  return entry;
}

static void record_node(const struct numbered_node *node, const char *site) {
  char room[LINE];
  struct text text;
  text_open(&text, room, sizeof room);
  text_format(&text, "{\"node\": %u, \"parent\": %ld, \"region\": %u, \"site\": \"%s\"}\n", node->number,
              node->parent == HS_FILTERED ? -1l : (long)node->parent, node->region, site);
  definitions_line(text.begin, (size_t)(text.at - text.begin));
}

/* Number of a call path on this rank, the same on all its threads; HS_FILTERED without memory.
 * Not to be called with the lock: the site is looked up. */
uint32_t definitions_node(uint32_t parent, uint32_t region, const void *site) {
  char place[1024] = "";
  hs_lock();
  struct numbered_node *entry = slot_of(parent, region, site);
  if (entry && !entry->used) {
    hs_unlock();
    symbols_site(site, place, sizeof place);
    hs_lock();
    entry = slot_of(parent, region, site);
    if (entry && !entry->used) {
      *entry = (struct numbered_node){parent, region, node_count++, 1, site};
      record_node(entry, place);
    }
  }
  uint32_t number = entry ? entry->number : HS_FILTERED;
  hs_unlock();
  return number;
}

/* The call tree of a location: nodes found by parent, region and call site. */

static struct node *new_node(struct location *me, struct node *parent, uint32_t region,
                             const void *site) {
  if (me->nodes >= MOST_NODES) return NULL;
  struct node *node = hs_keep(sizeof *node);
  if (!node) return NULL;
  node->number = definitions_node(parent ? parent->number : HS_FILTERED, region, site);
  if (node->number == HS_FILTERED) return NULL;
  node->parent = parent;
  node->region = region;
  node->site = site;
  node->least = UINT64_MAX;
  if (hs_recorder.mode == MODE_PROFILE && hs_recorder.counters) {
    node->counters = hs_keep(2 * hs_recorder.counters * sizeof *node->counters);
    if (!node->counters) return NULL;
  }
  if (me->newest) me->newest->next = node;
  me->newest = node;
  me->nodes++;
  return node;
}

struct node *calltree_root(struct location *me) {
  if (!me->root) me->root = new_node(me, NULL, 0, NULL);
  return me->root;
}

static uint32_t child_hash(const struct node *parent, uint32_t region, const void *site) {
  uint64_t hash = ((uintptr_t)parent ^ (uint64_t)region << 40) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (uintptr_t)site) * 0xff51afd7ed558ccdull;
  return (uint32_t)(hash >> 32);
}

static int grow(struct location *me) {
  uint32_t mask = me->children ? me->child_mask * 2 + 1 : 255;
  struct child_slot *larger = hs_keep((mask + 1ul) * sizeof *larger);
  if (!larger) return 0;
  for (uint32_t i = 0; me->children && i <= me->child_mask; i++) {
    struct child_slot *old = &me->children[i];
    if (!old->child) continue;
    uint32_t slot = child_hash(old->parent, old->region, old->site) & mask;
    while (larger[slot].child) slot = (slot + 1) & mask;
    larger[slot] = *old;
  }
  me->children = larger;
  me->child_mask = mask;
  return 1;
}

static struct child_slot *child_slot_of(struct location *me, const struct node *parent, uint32_t region,
                                  const void *site) {
  uint32_t slot = child_hash(parent, region, site) & me->child_mask;
  struct child_slot *entry = &me->children[slot];
  while (entry->child &&
         (entry->parent != parent || entry->region != region || entry->site != site)) {
    slot = (slot + 1) & me->child_mask;
    entry = &me->children[slot];
  }
  return entry;
}

static int is_recursive(const struct node *node, uint32_t region) {
  for (; node; node = node->parent)
    if (node->region == region) return 1;
  return 0;
}

/* The child, made where it is new. Within a recursion call sites are not distinguished: the paths
 * would be as many as there are calls. NULL where there are too many paths. */
struct node *calltree_find(struct location *me, struct node *parent, uint32_t region,
                           const void *site) {
  if ((!me->children || me->child_count * 2 > me->child_mask) && !grow(me)) return NULL;
  struct child_slot *slot = child_slot_of(me, parent, region, site);
  if (!slot->child) {
    struct node *child = NULL;
    if (site && is_recursive(parent, region)) {
      child = calltree_find(me, parent, region, NULL);
      slot = child_slot_of(me, parent, region, site);
    } else {
      child = new_node(me, parent, region, site);
    }
    if (!child) return NULL;
    *slot = (struct child_slot){parent, site, child, region};
    me->child_count++;
  }
  return slot->child;
}

static struct node *mirror_of(struct location *me, const struct node *node) {
  if (!node->parent) return me->root;
  struct node *parent = mirror_of(me, node->parent);
  return parent ? calltree_find(me, parent, node->region, node->site) : NULL;
}

/* The same call path as a node of another location. */
struct node *calltree_mirror(struct location *me, const struct node *node) {
  if (me->mirrored != node) {
    me->mirror = mirror_of(me, node);
    me->mirrored = node;
  }
  return me->mirror;
}
