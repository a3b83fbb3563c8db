/* The preloaded library's MPI functions: finds out at the first call which MPI the program has.
 *
 * Until then nothing is known and nothing is done. The MPI's own library is the one among those
 * that the program has loaded which defines PMPI_Init. Its tracer is one that `haloscope measure`
 * has named, or is compiled by haloscope, which knows where compiled files are kept: one process of
 * a host does that, the others wait. Where there can be no tracer, calls go straight to the MPI, and
 * one line gives the reason.
 */
#include "stub.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "location.h"

/* Written by wrappers.py: a slot for each function, and the functions' names, one after another. */
extern void *hs_slots[];
extern const char hs_names[];

__thread struct hs_mpi_thread hs_mpi_thread;

enum { MOST_ANSWER = 8192, MOST_VERSION = 8192, MOST_COMPLAINT = 4096 };

static pthread_mutex_t deciding = PTHREAD_MUTEX_INITIALIZER;
static int decided;
static char answer[MOST_ANSWER];
static char complaint[400]; /* of the builder, where it has left no answer */

/* Print once, from the first of the ranks where a launcher has numbered them. */
static void say(const char *text) {
  const char *rank = hs_launcher_rank();
  if (rank && strcmp(rank, "0") != 0) return;
  fprintf(stderr, "haloscope: %s; the program runs without being measured\n", text);
}

void hs_give_up(void) {
  hs_leave_reason("said", "");
  hs_lock();
  if (hs_recorder.state == ON) {
    files_drop();
    hs_record_no_more(OFF);
  }
  hs_unlock();
}

/* ---- building ---- */

/* The program's environment, less what would have the compiler's run measured, too; with the folders
 * in which haloscope itself has found its packages. */
static char **plain_environment(char **packages) {
  extern char **environ;
  static const char *const left_out[] = {"LD_PRELOAD=", "HALOSCOPE_MEASURE=", "PYTHONPATH=",
                                         "PYTHONHOME=", "PYTHONSTARTUP="};
  const char *folders = getenv("HALOSCOPE_PACKAGES");
  size_t count = 0, kept = 0;
  while (environ[count]) count++;
  char **copy = calloc(count + 2, sizeof *copy);
  if (copy == NULL) return NULL;
  for (size_t at = 0; at < count; at++) {
    int leave = 0;
    for (size_t variable = 0; variable < sizeof left_out / sizeof *left_out; variable++)
      leave |= strncmp(environ[at], left_out[variable], strlen(left_out[variable])) == 0;
    if (!leave) copy[kept++] = environ[at];
  }
  if (folders && asprintf(packages, "PYTHONPATH=%s", folders) > 0) copy[kept++] = *packages;
  return copy;
}

/* The last line that is not empty of what the builder has written to its standard error. */
static void read_complaint(int file) {
  char text[MOST_COMPLAINT + 1];
  const off_t size = lseek(file, 0, SEEK_END);
  const off_t from = size > MOST_COMPLAINT ? size - MOST_COMPLAINT : 0;
  ssize_t length = size > 0 ? pread(file, text, MOST_COMPLAINT, from) : 0;
  while (length > 0 && (unsigned char)text[length - 1] <= ' ') length--;
  text[length > 0 ? length : 0] = '\0';
  const char *line = strrchr(text, '\n');
  line = line ? line + 1 : text;
  size_t used = 0;
  for (; *line && used + 1 < sizeof complaint; line++)
    complaint[used++] = (unsigned char)*line < ' ' || *line == 127 ? '?' : *line;
  complaint[used] = '\0';
}

/* Run haloscope's builder, which leaves its answer in a file. */
static int run_builder(const char *library, const char *version, const char *path) {
  const char *python = getenv("HALOSCOPE_PYTHON");
  char *packages = NULL;
  if (python == NULL) return 0;
  char **environment = plain_environment(&packages);
  char *const arguments[] = {(char *)python, "-P", "-m", "haloscope.scope.record.carriers",
                             (char *)library, (char *)version, (char *)path, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  sigset_t none, defaults;
  pid_t child;
  int status = 0, done = 0;
  if (environment == NULL) return 0;
  const int errors = memfd_create("haloscope", MFD_CLOEXEC);
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGCHLD);
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &defaults);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  if (errors >= 0) posix_spawn_file_actions_adddup2(&files, errors, 2);
  if (posix_spawn(&child, python, &files, &how, arguments, environment) == 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    done = 1; /* the answer tells the rest: a program that ignores SIGCHLD has no status */
    if (errors >= 0) read_complaint(errors);
  }
  if (errors >= 0) close(errors);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  free(environment);
  free(packages);
  return done;
}

static int read_answer(int file) {
  const ssize_t length = pread(file, answer, sizeof answer - 1, 0);
  answer[length > 0 ? length : 0] = '\0';
  answer[strcspn(answer, "\n")] = '\0';
  return length > 0;
}

/* The answer becomes where the tracer of an MPI lies, or a text that begins with "error: ". One
 * process of a host asks haloscope's builder, and leaves what it says in the measurement's folder
 * for the others. */
static void ask_for_tracer(const char *library, const char *version) {
  const char *folder = getenv("HALOSCOPE_MEASURE");
  char path[PATH_MAX + 300], host[256] = "";
  uint64_t hash = 1469598103934665603ull;
  for (const char *at = library; *at; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211ull;
  gethostname(host, sizeof host - 1);
  snprintf(path, sizeof path, "%s/.tracer-%s-%016llx", folder, host, (unsigned long long)hash);
  const int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) {
    snprintf(answer, sizeof answer, "error: %s: the folder cannot be written (%s)", folder, strerror(errno));
    return;
  }
  // It names a library that is loaded: not one that a third user has put there. (Some file systems have one
  // owner for all.)
  struct stat about, around;
  if (fstat(file, &about) || stat(folder, &around) ||
      (about.st_uid != geteuid() && about.st_uid != around.st_uid)) {
    snprintf(answer, sizeof answer, "error: %s: the file belongs to another user; remove it", path);
    close(file);
    return;
  }
  while (flock(file, LOCK_EX) < 0 && errno == EINTR) continue;
  const char *python = getenv("HALOSCOPE_PYTHON") ? getenv("HALOSCOPE_PYTHON") : "python";
  if (read_answer(file)) {
    close(file);
    return;
  }
  const int started = run_builder(library, version, path);
  if (!started)
    snprintf(answer, sizeof answer, "error: %s: the tracer of this MPI cannot be built: %s did not "
             "start", library, python);
  else if (!read_answer(file))
    snprintf(answer, sizeof answer, "error: %s: the tracer of this MPI cannot be built: %s ended without "
             "an answer%s%s", library, python, complaint[0] ? ", its last line: " : "", complaint);
  close(file);
}

/* A tracer that was known when the measurement began: path, bytes, nanoseconds and tracer. */
static int is_known(const char *library) {
  const char *line = getenv("HALOSCOPE_TRACERS");
  const size_t length = strlen(library);
  struct stat now;
  if (stat(library, &now) != 0) return 0;
  for (; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    char *after;
    if (strncmp(line, library, length) != 0 || line[length] != '\t') continue;
    const long long bytes = strtoll(line + length + 1, &after, 10);
    const long long written = strtoll(after, &after, 10);
    if (*after != '\t' || bytes != (long long)now.st_size ||
        written != (long long)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec)
      return 0;
    snprintf(answer, sizeof answer, "%.*s", (int)strcspn(after + 1, "\n"), after + 1);
    return access(answer, R_OK) == 0;
  }
  return 0;
}

/* ---- deciding ---- */

static void *real_function(const struct hs_library *mpi, const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  return function || mpi->handle == NULL ? function : dlsym(mpi->handle, name);
}

static void missing(void) {
  static const char text[] = "haloscope: the program calls an MPI function that its MPI lacks\n";
  if (write(2, text, sizeof text - 1) < 0) abort();
  abort();
}

static void have_it_built(const struct hs_library *mpi, int begins) {
  char version[MOST_VERSION + 1] = "";
  int length = 0;
  int (*get_version)(char *, int *) = (int (*)(char *, int *))dlsym(mpi->handle, "MPI_Get_library_version");
  if (get_version) get_version(version, &length);
  version[MOST_VERSION] = '\0';
  /* A process that uses MPI without MPI_Init is none that can be measured. */
  const uint32_t region = begins ? hs_region("preparation of the tracer", "measurement", "other", "", 0)
                                 : HS_FILTERED;
  if (region != HS_FILTERED) hs_enter(region, NULL);
  ask_for_tracer(mpi->path, version);
  if (region != HS_FILTERED) hs_leave(region);
}

static const struct hs_function *load_tracer(const struct hs_library *mpi, int begins) {
  if (!is_known(mpi->path)) have_it_built(mpi, begins);
  if (strncmp(answer, "error: ", 7) == 0) {
    say(answer + 7);
    return NULL;
  }
  void *tracer = dlopen(answer, RTLD_NOW | RTLD_LOCAL);
  const struct hs_function *table = tracer ? dlsym(tracer, HS_TRACER_TABLE) : NULL;
  if (table == NULL) say(dlerror());
  return table;
}

/* The C functions come first; those of Fortran are looked for when they are called. */
static int is_fortran(const char *name) { return strncmp(name, "mpi_", 4) == 0; }

static void fill_slots(const struct hs_library *mpi, const struct hs_function *table) {
  size_t slot = 0;
  for (const char *name = hs_names; *name && !is_fortran(name); name += strlen(name) + 1, slot++) {
    void *target = real_function(mpi, name);
    if (target == NULL) target = (void *)missing;
    for (const struct hs_function *entry = table; entry && entry->name; entry++)
      if (entry->measured && strcmp(entry->name, name) == 0) target = entry->wrapper;
    __atomic_store_n(&hs_slots[slot], target, __ATOMIC_RELEASE);
  }
}

static const char *name_of(int slot) {
  const char *name = hs_names;
  for (int at = 0; at < slot; at++) name += strlen(name) + 1;
  return name;
}

/* `begins`: the call that asks is one that starts MPI. */
static void decide(int begins) {
  struct hs_library mpi;
  const struct hs_function *table = NULL;
  const int count = hs_find_mpi(&mpi);
  const char *folder = getenv("HALOSCOPE_MEASURE");
  if (folder && *folder) {
    if (count == 1) table = load_tracer(&mpi, begins);
    else if (count > 1) say("the program has loaded more than one MPI");
    else say("the libraries of the program contain no MPI");
    if (table == NULL) hs_give_up();
  }
  fill_slots(&mpi, table);
  hs_loaded_tracer(&mpi, table);
  hs_redirect();
}

static void find_fortran(int slot) {
  const char *name = hs_names;
  int fortran = 0;
  for (int at = 0; at < slot; at++) {
    fortran |= is_fortran(name);
    name += strlen(name) + 1;
  }
  if (!fortran && !is_fortran(name)) return;
  void *target = dlsym(RTLD_NEXT, name);
  if (target == NULL) target = hs_find_function(name);
  if (target == NULL) target = (void *)missing;
  __atomic_store_n(&hs_slots[slot], target, __ATOMIC_RELEASE);
}

__attribute__((visibility("hidden"))) void *hs_first_call(int slot) {
  const int kept = errno;
  pthread_mutex_lock(&deciding);
  if (!decided) {
    const char *name = name_of(slot);
    decide(strncasecmp(name, "MPI_Init", 8) == 0);
  }
  decided = 1;
  find_fortran(slot);
  pthread_mutex_unlock(&deciding);
  errno = kept;
  return __atomic_load_n(&hs_slots[slot], __ATOMIC_ACQUIRE);
}
