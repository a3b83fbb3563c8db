/* Profile mode: time and messages of each call path, written when the process ends, in order or
 * by a signal. Nothing is allocated while writing. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- messages -------------------------------------------------------------------------------- */

static struct pair *pair_of(struct location *me, struct node *node, uint32_t peer) {
  if (me->last_pair && me->last_pair->node == node && me->last_pair->peer == peer)
    return me->last_pair;
  if (!me->pairs || me->pair_count * 2 > me->pair_mask) {
    uint32_t mask = me->pairs ? me->pair_mask * 2 + 1 : 255;
    struct pair *larger = hs_keep((mask + 1ul) * sizeof *larger);
    if (!larger) return NULL;
    for (uint32_t i = 0; me->pairs && i <= me->pair_mask; i++) {
      struct pair *old = &me->pairs[i];
      if (!old->node) continue;
      uint32_t slot = (old->node->number * 0x9e3779b1u ^ old->peer * 0x85ebca77u) & mask;
      while (larger[slot].node) slot = (slot + 1) & mask;
      larger[slot] = *old;
    }
    me->pairs = larger;
    me->pair_mask = mask;
  }
  uint32_t slot = (node->number * 0x9e3779b1u ^ peer * 0x85ebca77u) & me->pair_mask;
  while (me->pairs[slot].node &&
         (me->pairs[slot].node != node || me->pairs[slot].peer != peer))
    slot = (slot + 1) & me->pair_mask;
  if (!me->pairs[slot].node) {
    me->pairs[slot] = (struct pair){.node = node, .peer = peer};
    me->pair_count++;
  }
  return me->last_pair = &me->pairs[slot];
}

static unsigned size_class(uint64_t bytes) {
  return bytes < 2 ? (unsigned)bytes : 65u - (unsigned)__builtin_clzll(bytes - 1);
}

static struct messages *messages_of(struct node *node) {
  if (!node->messages) node->messages = hs_keep(sizeof *node->messages);
  return node->messages;
}

static void count_sent(struct location *me, struct messages *messages, uint32_t peer,
                       uint64_t bytes) {
  struct pair *pair = pair_of(me, me->current, peer);
  messages->sent++;
  messages->sent_empty += bytes == 0;
  messages->sent_bytes += bytes;
  messages->sizes[size_class(bytes)]++;
  if (!pair) return;
  pair->messages++;
  pair->empty += bytes == 0;
  pair->bytes += bytes;
}

void profile_message(struct location *me, uint32_t kind, uint32_t peer, const uint64_t *words) {
  struct messages *messages = messages_of(me->current);
  if (!messages) return;
  switch (kind) {
    case HS_EVENT_SEND:
    case HS_EVENT_ISEND:
      if (peer != HS_NOBODY) count_sent(me, messages, peer, words[1]);
      break;
    case HS_EVENT_RECV:
    case HS_EVENT_IRECV_DONE:
      if (peer == HS_NOBODY) break;
      messages->received++;
      messages->received_empty += words[1] == 0;
      if (words[1] != HS_BYTES_UNKNOWN) messages->received_bytes += words[1];
      break;
    case HS_EVENT_COLLECTIVE:
    case HS_EVENT_ICOLLECTIVE:
      messages->collectives++;
      messages->collective_sent += words[1];
      messages->collective_received += words[2];
      break;
    case HS_EVENT_PUT:
    case HS_EVENT_GET:
      messages->accesses++;
      messages->accessed_bytes += words[1];
      break;
    default: break;
  }
}

/* --- file ------------------------------------------------------------------------------------- */

static char room[1 << 16];
static struct text out;
static int file = -1;

static uint64_t written;
static int cut; /* something could not be written */

static void write_out(void) {
  written += (uint64_t)(out.at - out.begin);
  cut |= !file_may_grow_to(written);
  for (char *from = out.begin; from < out.at && !cut;) {
    ssize_t count = write(file, from, (size_t)(out.at - from));
    if (count < 0 && errno == EINTR) continue;
    cut |= count <= 0;
    from += count > 0 ? count : 0;
  }
  text_open(&out, room, sizeof room);
}

static void put_list(const char *name, const uint64_t *numbers, size_t count) {
  text_format(&out, ", \"%s\": [", name);
  for (size_t i = 0; i < count; i++) text_format(&out, i ? ", %lu" : "%lu", numbers[i]);
  text_put(&out, "]");
}

static void put_messages(const struct messages *messages) {
  const uint64_t sent[] = {messages->sent, messages->sent_empty, messages->sent_bytes};
  const uint64_t received[] = {messages->received, messages->received_empty,
                               messages->received_bytes};
  const uint64_t collective[] = {messages->collectives, messages->collective_sent,
                                 messages->collective_received};
  const uint64_t accesses[] = {messages->accesses, messages->accessed_bytes};
  size_t classes = SIZE_CLASSES;
  while (classes && messages->sizes[classes - 1] == 0) classes--;
  if (messages->sent) put_list("sent", sent, 3);
  if (messages->received) put_list("received", received, 3);
  if (messages->collectives) put_list("collective", collective, 3);
  if (messages->accesses) put_list("accesses", accesses, 2);
  if (classes) put_list("sizes", messages->sizes, classes);
}

static void put_node(const struct location *me, const struct node *node, double rate) {
  uint64_t own = node->ticks > node->inner ? node->ticks - node->inner : 0;
  text_format(&out,
              "{\"node\": %u, \"location\": %u, \"visits\": %lu, \"seconds\": %e, \"least\": %e, \"most\": %e",
              node->number, me->number, node->visits, (double)own / rate,
              node->visits ? (double)node->least / rate : 0, (double)node->most / rate);
  if (node->messages) put_messages(node->messages);
  if (node->counters) {
    text_put(&out, ", \"counters\": {");
    for (uint32_t i = 0; i < hs_recorder.counters; i++)
      text_format(&out, i ? ", \"%s\": %lu" : "\"%s\": %lu", counters_name(i), node->counters[i]);
    text_put(&out, "}");
  }
  text_put(&out, "}\n");
}

static void put_location(struct location *me, double rate) {
  for (struct node *node = me->root; node; node = node->next) {
    if (!node->visits && !node->messages) continue;
    put_node(me, node, rate);
    if (out.end - out.at < (long)sizeof room / 2) write_out();
  }
  for (uint32_t i = 0; me->pairs && i <= me->pair_mask; i++) {
    const struct pair *pair = &me->pairs[i];
    if (!pair->node) continue;
    text_format(&out, "{\"pair\": %u, \"node\": %u, \"messages\": %lu, \"empty\": %lu, \"bytes\": %lu}\n",
                pair->peer, pair->node->number, pair->messages, pair->empty, pair->bytes);
    if (out.end - out.at < (long)sizeof room / 2) write_out();
  }
}

void profile_write(double rate) {
  char path[4096], temporary[4096];
  file_path(path, sizeof path, "profile", -1);
  file_path(temporary, sizeof temporary, "profile.new", -1);
  file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0) {
    hs_say_once("the profile cannot be written; check that the folder of the measurement still exists");
    return;
  }
  text_open(&out, room, sizeof room);
  written = 0;
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    put_location(location, rate);
  write_out();
  close(file);
  file = -1;
  if (cut) {
    definitions_lost("the profile is incomplete", NULL);
    hs_say_once("the profile is incomplete (disk full or limit of file sizes reached)");
  }
  if (rename(temporary, path))
    hs_say_once("the profile cannot be renamed and stays in a file that ends in .new");
}

/* --- signals ------------------------------------------------------------------------------------ */

static void on_fatal_signal(int number) {
  static volatile sig_atomic_t within;
  if (!within) {
    within = 1;
    hs_finish_in_signal(number);
  }
  signal(number, SIG_DFL);
  raise(number); /* comes when this returns, with its usual effect */
}

/* Where the program has no handler of its own. */
void profile_catch_signals(void) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL,  SIGFPE,  SIGABRT, SIGSYS, SIGTERM,
                              SIGINT,  SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ, SIGPIPE};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
    struct sigaction there;
    if (sigaction(fatal[i], NULL, &there) || (there.sa_flags & SA_SIGINFO) ||
        there.sa_handler != SIG_DFL)
      continue;
    struct sigaction ours = {.sa_handler = on_fatal_signal, .sa_flags = SA_ONSTACK};
    sigaction(fatal[i], &ours, NULL);
  }
}
