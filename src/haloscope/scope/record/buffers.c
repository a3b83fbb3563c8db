/* Files of events: each location writes into a window of its own file, mapped into memory.
 *
 * Events stored there survive the process, however it ends. Blocks of the window are
 * reserved before it is mapped, so that a full disk is an error here and not a signal later, and
 * its pages are touched, so that no page fault comes while events are recorded. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* --- files of a process: under its own name until its rank is known, then under that of the rank --- */

enum { HIGH_FILE = 200 };

/* Label of a process without a rank: its number, and a hash of host name and start time, since other
 * machines use the same numbers and a process may run one program after another. */
static const char *label(void) {
  static char known[40];
  if (known[0]) return known;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  uint64_t hash = clock_epoch() + 0xcbf29ce484222325ull;
  for (const char *c = host; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
  snprintf(known, sizeof known, "%d-%08x", (int)hs_recorder.process, (unsigned)(hash ^ hash >> 32));
  return known;
}

/* Beyond the limit of file sizes the system would send a signal, which ends most programs. */
int file_may_grow_to(uint64_t size) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         size <= limit.rlim_cur;
}

void file_path(char *path, size_t room, const char *ending, int location) {
  struct text text;
  text_open(&text, path, room);
  if (hs_recorder.attached) {
    text_format(&text, "%s/rank-", hs_recorder.folder);
    for (int least = 10000; least > 1 && hs_recorder.rank < least; least /= 10) text_put(&text, "0");
    text_format(&text, "%d.", hs_recorder.rank);
  } else {
    text_format(&text, "%s/process-%s.", hs_recorder.folder, label());
  }
  if (location >= 0) text_format(&text, "%d.", location);
  text_put(&text, ending);
}

static int remember(struct file *file) {
  struct stat status;
  if (file->fd < 0) return 0;
  /* Out of the way of programs that take the lowest numbers for granted. */
  int high = fcntl(file->fd, F_DUPFD_CLOEXEC, HIGH_FILE);
  if (high >= 0) {
    close(file->fd);
    file->fd = high;
  }
  if (fstat(file->fd, &status)) return 0;
  file->device = status.st_dev;
  file->inode = status.st_ino;
  return 1;
}

int file_open_new(struct file *file, const char *path) {
  file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  return remember(file);
}

/* True when the file can be used: opened again where the program has closed it. */
int file_ready(struct file *file, const char *path) {
  struct stat status;
  if (file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_dev == file->device &&
      status.st_ino == file->inode)
    return 1;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return 0;
  if (fstat(fd, &status) || status.st_dev != file->device || status.st_ino != file->inode) {
    close(fd);
    return 0;
  }
  file->fd = fd;
  return remember(file);
}

static int rename_to_new(const char *from, const char *to) {
#ifdef SYS_renameat2
  if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 1 /* RENAME_NOREPLACE */) == 0) return 1;
  if (errno == EEXIST) return 0;
#endif
  if (link(from, to) == 0) {
    unlink(from);
    return 1;
  }
  return errno != EEXIST && access(to, F_OK) != 0 && rename(from, to) == 0;
}

/* A program without MPI that ran before made itself rank 0: it goes, for the one with MPI. */
static int make_way(const char *path) {
  char opening[OPENING + 1];
  char other[4096];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, opening, OPENING);
  if (fd >= 0) close(fd);
  opening[length > 0 ? length : 0] = 0;
  if (!hs_recorder.mpi[0] || !strstr(opening, "\"mpi\": \"\"")) return 0;
  for (int location = 0;; location++) {
    file_path(other, sizeof other, "events", location);
    if (unlink(other)) break;
  }
  file_path(other, sizeof other, "profile", -1);
  unlink(other);
  unlink(path);
  hs_say_once("the events of a process without MPI that ran before the MPI program are removed");
  return 1;
}

/* Under the name of the rank, which has just become known. */
int files_take_rank(void) {
  char from[4096], to[4096];
  hs_recorder.attached = 0;
  file_path(from, sizeof from, "def", -1);
  hs_recorder.attached = 1;
  file_path(to, sizeof to, "def", -1);
  if (!rename_to_new(from, to) && !(make_way(to) && rename_to_new(from, to))) return 0;
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    if (location->base) {
      hs_recorder.attached = 0;
      file_path(from, sizeof from, "events", (int)location->number);
      hs_recorder.attached = 1;
      file_path(to, sizeof to, "events", (int)location->number);
      if (rename(from, to)) return 0;
    }
  return 1;
}

void files_drop(void) {
  char path[4096];
  hs_recorder.attached = 0;
  file_path(path, sizeof path, "def", -1);
  unlink(path);
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    if (location->base) {
      file_path(path, sizeof path, "events", (int)location->number);
      unlink(path);
    }
}
