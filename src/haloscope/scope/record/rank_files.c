/* Files of a process: under its own name until its rank is known, then under that of the rank. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
