/* Finds out which ranks of the world carry the recorder, before it exchanges any message.
 *
 * A rank may lack it: it was started without the preloaded library, its tracer could not be built,
 * it cannot write into the measurement's folder. A collective operation on the world would wait for
 * that rank for ever, and a message to it could be taken by a receive of the program. So the ranks
 * agree by files in the measurement's folder:
 *
 *   .here/R        rank R has come to MPI_Init with a recorder; its content names the tracer
 *   .here/R.again  a second process came as rank R: two programs are measured into one folder
 *   .lock          made by the rank that looks for all others; not empty once it has decided
 *   .team          who belongs together, made by link(2): what was linked first holds for all
 *
 * Network file systems keep what they know of a folder for a while: files are looked for by name,
 * by one rank only, and the others look at one file that is there already.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mpi_tracer.h"

enum { TEAM_TAG = 7, MOST_IDENTITY = 64, MOST_LINE = 40, ROOM = PATH_MAX + 100 };

static const double look_seconds = 2, wait_seconds = 30;

#define FIRST_WORDS "haloscope team 1"
#define ANOTHER_PROGRAM "another program of this measurement is not measured; measure it separately"

enum mark { MARK_NONE, MARK_OWN, MARK_AGAIN, MARK_FAILED };
enum state { ABSENT = 0, HERE = 1, OTHER_VERSION = 2 };

MPI_Comm hs_carriers = MPI_COMM_NULL;

static enum mark mark;
static int marked_rank = -1;

static void path_in_folder(char *path, const char *name) {
  const char *folder = getenv("HALOSCOPE_MEASURE");
  snprintf(path, ROOM, "%s/%s", folder ? folder : "", name);
}

static void path_of_rank(char *path, int rank, const char *ending) {
  char name[40];
  snprintf(name, sizeof name, ".here/%d%s", rank, ending);
  path_in_folder(path, name);
}

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void rest(double *pause) {
  const struct timespec time = {0, (long)(*pause * 1e9)};
  nanosleep(&time, NULL);
  if (*pause < 0.02) *pause *= 1.5;
}

static int write_new(const char *path, const char *text, size_t length) {
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  const int whole = write(file, text, length) == (ssize_t)length;
  close(file);
  if (!whole) unlink(path);
  return whole;
}

/* ---- marks ---- */

static void leave_mark(int rank) {
  char path[ROOM];
  path_in_folder(path, ".here");
  mark = MARK_FAILED;
  marked_rank = rank;
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return;
  path_of_rank(path, rank, "");
  if (write_new(path, HALOSCOPE_TRACER, sizeof HALOSCOPE_TRACER - 1)) {
    mark = MARK_OWN;
  } else if (errno == EEXIST) {
    mark = MARK_AGAIN;
    path_of_rank(path, rank, ".again");
    write_new(path, "", 0);
  }
}

/* Ahead of MPI_Init, which most MPIs let no rank out of before all have entered it. */
void hs_carriers_mark(void) {
  const char *text = hs_launcher_rank();
  if (text == NULL || !hs_ready()) return;
  char *end;
  const long rank = strtol(text, &end, 10);
  if (end != text && *end == '\0' && rank >= 0 && rank < INT_MAX) leave_mark((int)rank);
}

/* ---- the rank that looks for all ---- */

static enum state look_for(int rank, char *identity) {
  char path[ROOM];
  path_of_rank(path, rank, "");
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return ABSENT;
  const ssize_t length = read(file, identity, MOST_IDENTITY);
  close(file);
  if (length <= 0) return ABSENT; /* not written yet */
  identity[length] = '\0';
  return HERE;
}

/* To open a folder makes a network file system look anew. True where a rank came twice. */
static int look_into_folder(int size) {
  char path[ROOM];
  int twice = 0;
  path_in_folder(path, ".here");
  DIR *folder = opendir(path);
  if (folder == NULL) return 0;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    char *end;
    const long rank = strtol(entry->d_name, &end, 10);
    twice |= end != entry->d_name && strcmp(end, ".again") == 0 && rank >= 0 && rank < size;
  }
  closedir(folder);
  return twice;
}

static int look_for_all(int size, unsigned char *states) {
  char first[MOST_IDENTITY + 1] = "", identity[MOST_IDENTITY + 1];
  const double until = seconds() + look_seconds;
  double pause = 1e-3;
  int first_rank = size, missing = size;
  for (;;) {
    for (int rank = 0; rank < size; rank++) {
      if (states[rank] != ABSENT || look_for(rank, identity) == ABSENT) continue;
      states[rank] = HERE;
      missing--;
      if (rank < first_rank) {
        first_rank = rank;
        memcpy(first, identity, sizeof first);
      }
    }
    if (missing == 0 || seconds() > until) break;
    rest(&pause);
    look_into_folder(0);
  }
  /* Other versions may exchange other messages: only those of the first rank's go together. */
  for (int rank = 0; rank < size; rank++)
    if (states[rank] == HERE && look_for(rank, identity) == HERE && strcmp(identity, first) != 0) {
      states[rank] = OTHER_VERSION;
      missing++;
    }
  return missing;
}

static void publish(const char *text) {
  char own[ROOM], path[ROOM], name[300], host[200] = "";
  gethostname(host, sizeof host - 1);
  snprintf(name, sizeof name, ".here/team-%s-%d", host, (int)getpid());
  path_in_folder(own, name);
  path_in_folder(path, ".team");
  if (!write_new(own, text, strlen(text))) return;
  /* Not every file system has links. */
  if (link(own, path) != 0 && errno != EEXIST && access(path, F_OK) != 0) rename(own, path);
  unlink(own);
}

static void decide(int size) {
  unsigned char *states = calloc((size_t)size, 1);
  char *text = malloc((size_t)size * MOST_LINE + 100), path[ROOM];
  if (states && text) {
    const int missing = look_for_all(size, states);
    const char *outcome = look_into_folder(size) ? "refused" : missing ? "part" : "all";
    char *at = text + sprintf(text, FIRST_WORDS " %s %d\n", outcome, size);
    for (int rank = 0; rank < size; rank++)
      if (states[rank] != HERE)
        at += sprintf(at, "%d %s\n", rank, states[rank] == ABSENT ? "absent" : "version");
    publish(text);
  }
  free(states);
  free(text);
  path_in_folder(path, ".lock");
  const int file = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t written = write(file, "\n", 1);
  (void)written;
  close(file);
}

/* ---- the others ---- */

static int has_decided(void) {
  char path[ROOM];
  struct stat about;
  path_in_folder(path, ".lock");
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return 0;
  const int decided = fstat(file, &about) == 0 && about.st_size > 0;
  close(file);
  return decided;
}

static void wait_for_decision(int size) {
  char text[100];
  const double until = seconds() + wait_seconds;
  double pause = 1e-4;
  while (!has_decided()) {
    if (seconds() > until) {
      snprintf(text, sizeof text, FIRST_WORDS " none %d\n", size);
      publish(text);
      return;
    }
    rest(&pause);
  }
}

/* The decision that holds for all ranks, as text to be freed; NULL where it cannot be read. */
static char *read_team(int size) {
  char path[ROOM];
  const size_t room = (size_t)size * MOST_LINE + 100;
  const double until = seconds() + 1;
  double pause = 1e-3;
  int file;
  path_in_folder(path, ".team");
  while ((file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)) < 0 && seconds() < until) rest(&pause);
  if (file < 0) return NULL;
  char *text = malloc(room + 1);
  size_t length = 0;
  for (ssize_t more = 1; text && more > 0; length += more > 0 ? (size_t)more : 0)
    more = read(file, text + length, room - length);
  close(file);
  if (text) text[length] = '\0';
  return text;
}

/* ---- the outcome ---- */

/* A communicator of the ranks that the text does not name; 0 where this rank is not among them. */
static int join_part(const char *text, int rank, int size) {
  int *members = malloc((size_t)size * sizeof *members), count = 0, own = 0;
  if (members == NULL) return 0;
  const char *line = strchr(text, '\n');
  long next = line ? strtol(line + 1, NULL, 10) : -1;
  for (int candidate = 0; candidate < size; candidate++) {
    if (line && line[1] && candidate == next) {
      line = strchr(line + 1, '\n');
      next = line && line[1] ? strtol(line + 1, NULL, 10) : -1;
      continue;
    }
    own |= candidate == rank;
    members[count++] = candidate;
  }
  if (own) {
    MPI_Group world, group;
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_incl(world, count, members, &group);
    PMPI_Comm_create_group(MPI_COMM_WORLD, group, TEAM_TAG, &hs_carriers);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
  }
  free(members);
  return own;
}

static const char *outcome_of(const char *text, int rank, int size) {
  char outcome[16] = "";
  int of = 0;
  if (text == NULL || sscanf(text, FIRST_WORDS " %15s %d", outcome, &of) != 2 || of != size)
    return ANOTHER_PROGRAM;
  if (strcmp(outcome, "all") == 0) {
    hs_carriers = MPI_COMM_WORLD;
  } else if (strcmp(outcome, "part") == 0) {
    if (!join_part(text, rank, size)) return "this rank is not measured: its recorder has another "
                                             "version than the recorder of the first rank";
  } else if (strcmp(outcome, "none") == 0) {
    hs_define("{\"apart\": \"the ranks could not agree on the ranks with a recorder\"}");
  } else {
    return "two programs started in one measurement, neither is measured; measure each program separately";
  }
  return NULL;
}

const char *hs_carriers_find(int rank, int size) {
  char path[ROOM];
  if (!hs_ready()) return ""; /* which has said why */
  if (mark == MARK_OWN && marked_rank != rank) {
    path_of_rank(path, marked_rank, "");
    unlink(path);
  }
  if (mark == MARK_NONE || marked_rank != rank) leave_mark(rank);
  if (mark == MARK_AGAIN) return ANOTHER_PROGRAM;
  if (mark == MARK_FAILED) return "the folder of the measurement cannot be written";
  if (size == 1) {
    hs_carriers = MPI_COMM_WORLD;
    return NULL;
  }
  path_in_folder(path, ".lock");
  const int lock = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock >= 0) {
    close(lock);
    decide(size);
  } else {
    wait_for_decision(size);
  }
  char *text = read_team(size);
  const char *reason = outcome_of(text, rank, size);
  free(text);
  return reason;
}
