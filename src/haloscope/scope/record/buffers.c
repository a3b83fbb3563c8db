/* Files of events: each location writes into a window of its own file, mapped into memory.
 *
 * Events stored there survive the process, however it ends. Blocks of the window are
 * reserved before it is mapped, so that a full disk is an error here and not a signal later, and
 * its pages are touched, so that no page fault comes while events are recorded. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const size_t FIRST_WINDOW = 1 << 20; /* bytes: of threads that may have little to say */
static const size_t ZEROS = 1 << 16;        /* bytes written at once where nothing else reserves */

static uint32_t flush_region = HS_FILTERED;

/* 0 or an error number. */
static int reserve(int fd, uint64_t offset, size_t length) {
  if (!file_may_grow_to(offset + length)) return EFBIG;
  int done;
  do done = fallocate(fd, 0, (off_t)offset, (off_t)length);
  while (done && errno == EINTR);
  if (done == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  /* The file system reserves nothing: blocks come with what is written. */
  static const char zeros[1 << 16];
  off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0) return errno;
  for (uint64_t at = (uint64_t)end; at < offset + length;) {
    uint64_t rest = offset + length - at;
    ssize_t count = pwrite(fd, zeros, rest < ZEROS ? rest : ZEROS, (off_t)at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count ? errno : ENOSPC;
    at += (uint64_t)count;
  }
  return 0;
}

static void touch(char *base, size_t length) {
  if (madvise(base, length, MADV_POPULATE_WRITE) == 0) return;
  for (size_t at = 0; at < length; at += hs_recorder.page) {
    volatile char *byte = base + at;
    *byte = *byte;
  }
}

/* Map the window that begins at the page of a byte of the file. 0 or an error number. */
static int map_window(struct location *me, uint64_t position, size_t length) {
  uint64_t offset = position & ~(uint64_t)(hs_recorder.page - 1);
  int error = reserve(me->file.fd, offset, length);
  if (error) return error;
  char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, me->file.fd, (off_t)offset);
  if (base == MAP_FAILED) return errno;
  touch(base, length);
  if (me->base) munmap(me->base, me->length);
  me->base = base;
  me->length = length;
  me->offset = offset;
  me->next = (uint64_t *)(void *)(base + (position - offset));
  me->limit = (uint64_t *)(void *)(base + length) - SPARE_WORDS;
  return 0;
}

static uint64_t position_of(const struct location *me) {
  return me->offset + (uint64_t)((char *)me->next - me->base);
}

static void write_header(struct location *me, uint64_t *header) {
  double rate = clock_rate();
  header[0] = HS_MAGIC;
  header[1] = (uint64_t)hs_recorder.rank | (uint64_t)me->number << 32;
  header[2] = clock_epoch() - clock_base();
  memcpy(&header[3], &rate, sizeof rate);
}

static const char *reason_for(int error) {
  switch (error) {
    case ENOSPC: return "disk full";
    case EDQUOT: return "disk quota used up";
    case EFBIG: return "limit of file sizes reached";
    case ENOMEM: return "no memory for a buffer";
    case ENODEV: return "the file system cannot map files into memory; measure into another folder";
    default: return "the event file cannot be extended";
  }
}

int buffer_open(struct location *me) {
  char path[4096];
  file_path(path, sizeof path, "events", (int)me->number);
  size_t length = hs_recorder.window;
  if (me->number && length > FIRST_WINDOW) length = FIRST_WINDOW;
  me->last = clock_epoch();
  int error = file_open_new(&me->file, path) ? map_window(me, 0, length) : errno;
  if (error) {
    hs_stop(me, reason_for(error));
    return 0;
  }
  uint64_t *header = me->next;
  header[0] = 0;
  write_header(me, header);
  me->next = header + HS_HEADER_WORDS;
  return 1;
}

/* Records the clock rate at most once a second: a killed program records none at its end. */
static void record_rate(uint64_t tick) {
  static uint64_t recorded_tick;
  if (!hs_recorder.attached || (double)(tick - recorded_tick) < clock_rate()) return;
  hs_lock();
  recorded_tick = tick;
  hs_record_rate(clock_final_rate());
  hs_unlock();
}

/* The window is full: the next one is mapped, and the time that it takes is an event, too. */
void buffer_roll(struct location *me) {
  if (!me->base || hs_recorder.stopped) return;
  char path[4096];
  uint64_t begin = now();
  file_path(path, sizeof path, "events", (int)me->number);
  size_t length = me->length * 2 < hs_recorder.window ? me->length * 2 : hs_recorder.window;
  int error = file_ready(&me->file, path) ? map_window(me, position_of(me), length) : EBADF;
  if (error) {
    hs_stop(me, reason_for(error));
    return;
  }
  if (flush_region == HS_FILTERED) 
    flush_region = definitions_region("flush", NULL, "measurement", "flush", "", 0);
  uint64_t end = now();
  me->flushes++;
  me->flush_ticks += end - begin;
  location_region(me, flush_region, begin, end);
  record_rate(end);
}

/* The rank and the rate of the clock are known now. */
void buffer_rename(struct location *me) {
  uint64_t header[HS_HEADER_WORDS] = {0};
  char path[4096];
  if (!me->base) return;
  file_path(path, sizeof path, "events", (int)me->number);
  write_header(me, header);
  if (!file_ready(&me->file, path) || pwrite(me->file.fd, header, sizeof header, 0) < 0)
    hs_say_once("the rank cannot be written into an event file; remove no files of the measurement");
}

/* Cuts the file to its events. A window that another thread may still write to stays. */
void buffer_close(struct location *me, int truncate) {
  char path[4096];
  if (!me->base) return;
  file_path(path, sizeof path, "events", (int)me->number);
  if (truncate && file_ready(&me->file, path) &&
      ftruncate(me->file.fd, (off_t)position_of(me)) == 0) {
    munmap(me->base, me->length);
    me->base = NULL;
    me->next = me->limit = NULL;
  }
  if (me->file.fd >= 0) close(me->file.fd);
  me->file.fd = -1;
}
