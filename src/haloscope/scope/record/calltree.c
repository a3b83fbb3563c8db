/* The call tree of a location: nodes found by parent, region and call site. */
#include "location.h"

#include <string.h>

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

static uint32_t place_of(const struct node *parent, uint32_t region, const void *site) {
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
    uint32_t slot = place_of(old->parent, old->region, old->site) & mask;
    while (larger[slot].child) slot = (slot + 1) & mask;
    larger[slot] = *old;
  }
  me->children = larger;
  me->child_mask = mask;
  return 1;
}

static struct child_slot *slot_of(struct location *me, const struct node *parent, uint32_t region,
                                  const void *site) {
  uint32_t slot = place_of(parent, region, site) & me->child_mask;
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
  struct child_slot *slot = slot_of(me, parent, region, site);
  if (!slot->child) {
    struct node *child = NULL;
    if (site && is_recursive(parent, region)) {
      child = calltree_find(me, parent, region, NULL);
      slot = slot_of(me, parent, region, site);
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
