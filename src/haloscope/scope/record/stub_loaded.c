/* Looks through the libraries that a program has loaded: for its MPI, and for calls to lead away.
 *
 * Functions that not every MPI has cannot be offered by the preloaded library: a program that asks
 * whether one is there (mpi4py does, for large-count forms) would be told a lie. So the calls
 * themselves are led to the tracer, in the tables through which each library calls others. The
 * same serves Open MPI's Fortran library, which calls MPI by its profiling names.
 */
#include "stub.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "location.h"

static const struct hs_function *table;
static char mpi_path[PATH_MAX];
static unsigned long long seen_loads;
static pthread_mutex_t redirecting = PTHREAD_MUTEX_INITIALIZER;

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* ---- the MPI ---- */

enum { MOST_CANDIDATES = 16 };

/* Libraries whose names say MPI. They are looked into once the list is complete: the loader must
 * not be called while it walks through its own. */
struct search {
  int count;
  struct {
    char name[PATH_MAX];
    ElfW(Addr) base;
  } libraries[MOST_CANDIDATES];
};

static int note_library(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  (void)size;
  if (info->dlpi_name == NULL || strncmp(base_name(info->dlpi_name), "libmpi", 6) != 0) return 0;
  if (search->count == MOST_CANDIDATES || strlen(info->dlpi_name) >= PATH_MAX) return 0;
  strcpy(search->libraries[search->count].name, info->dlpi_name);
  search->libraries[search->count++].base = info->dlpi_addr;
  return 0;
}

void *hs_find_function(const char *name) {
  struct search *search = calloc(1, sizeof *search);
  void *function = NULL;
  if (search == NULL) return NULL;
  dl_iterate_phdr(note_library, search);
  for (int at = 0; at < search->count && function == NULL; at++) {
    void *handle = dlopen(search->libraries[at].name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle) function = dlsym(handle, name);
  }
  free(search);
  return function;
}

int hs_find_mpi(struct hs_library *mpi) {
  struct search *search = calloc(1, sizeof *search);
  int count = 0;
  memset(mpi, 0, sizeof *mpi);
  if (search == NULL) return 0;
  dl_iterate_phdr(note_library, search);
  for (int at = 0; at < search->count; at++) {
    const char *name = search->libraries[at].name;
    Dl_info where;
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    void *init = handle ? dlsym(handle, "PMPI_Init") : NULL;
    /* Bindings for other languages have it from the library that they need. */
    if (init && dladdr(init, &where) && (uintptr_t)where.dli_fbase == search->libraries[at].base) {
      if (count++ == 0) {
        mpi->handle = handle;
        if (realpath(name, mpi->path) == NULL) strcpy(mpi->path, name);
      }
    } else if (handle) {
      dlclose(handle);
    }
  }
  free(search);
  return count;
}

/* ---- calls ---- */

struct object {
  ElfW(Addr) base;
  const char *name;
  const ElfW(Sym) *symbols;
  const char *strings;
  const ElfW(Rela) *calls, *others;
  size_t call_count, other_count, relative_count;
  ElfW(Addr) protected_begin, protected_end; /* read-only since it was loaded */
  ElfW(Addr) end;
};

struct hs_range hs_fortran[HS_MOST_FORTRAN];

static ElfW(Addr) located(const struct object *object, ElfW(Addr) address) {
  return address < object->base ? object->base + address : address;
}

static int open_object(const struct dl_phdr_info *info, struct object *object) {
  const ElfW(Dyn) *entry = NULL;
  memset(object, 0, sizeof *object);
  object->base = info->dlpi_addr;
  object->name = info->dlpi_name ? info->dlpi_name : "";
  for (int at = 0; at < info->dlpi_phnum; at++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[at];
    if (header->p_type == PT_DYNAMIC) entry = (const void *)(object->base + header->p_vaddr);
    const ElfW(Addr) end = object->base + header->p_vaddr + header->p_memsz;
    if (header->p_type == PT_LOAD && end > object->end) object->end = end;
    if (header->p_type == PT_GNU_RELRO) {
      object->protected_begin = object->base + header->p_vaddr;
      object->protected_end = object->protected_begin + header->p_memsz;
    }
  }
  if (entry == NULL) return 0;
  int with_addends = 1;
  for (; entry->d_tag != DT_NULL; entry++) {
    const ElfW(Addr) value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB: object->symbols = (const void *)located(object, value); break;
      case DT_STRTAB: object->strings = (const void *)located(object, value); break;
      case DT_JMPREL: object->calls = (const void *)located(object, value); break;
      case DT_RELA: object->others = (const void *)located(object, value); break;
      case DT_PLTRELSZ: object->call_count = value / sizeof(ElfW(Rela)); break;
      case DT_RELASZ: object->other_count = value / sizeof(ElfW(Rela)); break;
      case DT_RELACOUNT: object->relative_count = value; break;
      case DT_PLTREL: with_addends = value == DT_RELA; break;
      default: break;
    }
  }
  return object->symbols && object->strings && with_addends;
}

static void *wrapper_of(const char *name) {
  for (const struct hs_function *entry = table; entry->name; entry++)
    if (strcmp(entry->name, name) == 0) return entry->measured ? entry->wrapper : NULL;
  return NULL;
}

/* Some pages are read-only once a library is loaded. */
static void store(const struct object *object, void **place, void *target) {
  const ElfW(Addr) page = (ElfW(Addr))sysconf(_SC_PAGESIZE);
  const ElfW(Addr) at = (ElfW(Addr))place, begin = at & ~(page - 1);
  /* The loader leaves the last page alone where only a part of it may be closed. */
  const int closed = at >= object->protected_begin && at < (object->protected_end & ~(page - 1));
  if (closed && mprotect((void *)begin, page, PROT_READ | PROT_WRITE) != 0) return;
  __atomic_store_n(place, target, __ATOMIC_RELEASE);
  if (closed) mprotect((void *)begin, page, PROT_READ);
}

static void redirect_list(const struct object *object, const ElfW(Rela) *list, size_t count,
                          int profiling_names) {
  for (size_t at = 0; at < count; at++) {
    const unsigned type = ELF64_R_TYPE(list[at].r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
    const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(list[at].r_info)];
    const char *name = object->strings + symbol->st_name;
    if (symbol->st_shndx != SHN_UNDEF || list[at].r_addend != 0) continue;
    if (profiling_names && strncmp(name, "PMPI_", 5) == 0) name++;
    if (strncmp(name, "MPI_", 4) != 0) continue;
    void *wrapper = wrapper_of(name);
    void **place = (void **)(object->base + list[at].r_offset);
    if (wrapper && *place != wrapper) store(object, place, wrapper);
  }
}

/* MPI's bindings for Fortran: libmpi_mpifh, libmpi_usempif08, libmpifort, libmpichfort, ... */
static int is_fortran(const char *name) {
  return strncmp(name, "libmpi", 6) == 0 &&
         (strstr(name, "fort") || strstr(name, "mpifh") || strstr(name, "usempi"));
}

static void note_fortran(const struct object *object) {
  const struct hs_range range = {(const char *)object->base, (const char *)object->end};
  for (int slot = 0; slot < HS_MOST_FORTRAN; slot++)
    if (hs_fortran[slot].begin == range.begin || hs_fortran[slot].begin == NULL) {
      hs_fortran[slot] = range;
      return;
    }
}

static int redirect_object(struct dl_phdr_info *info, size_t size, void *data) {
  struct object object;
  char path[PATH_MAX];
  const char *own = data;
  (void)size;
  if (!open_object(info, &object)) return 0;
  const char *name = base_name(object.name);
  /* The MPI's calls of itself are its own business, and the tracer has to get through to it. */
  if (strncmp(name, "libmpi", 6) == 0 && realpath(object.name, path) && strcmp(path, mpi_path) == 0)
    return 0;
  if (strcmp(object.name, own) == 0) return 0;
  const int fortran = is_fortran(name);
  if (fortran) note_fortran(&object);
  redirect_list(&object, object.calls, object.call_count, fortran);
  if (object.other_count > object.relative_count)
    redirect_list(&object, object.others + object.relative_count,
                  object.other_count - object.relative_count, fortran);
  return 0;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  *(unsigned long long *)data = info->dlpi_adds;
  return 1;
}

void hs_loaded_tracer(const struct hs_library *mpi, const struct hs_function *functions) {
  table = functions;
  memcpy(mpi_path, mpi->path, sizeof mpi_path);
}

void hs_redirect(void) {
  unsigned long long loads = 0;
  Dl_info own;
  if (table == NULL || !dladdr(table, &own)) return;
  dl_iterate_phdr(count_loads, &loads);
  if (loads == __atomic_load_n(&seen_loads, __ATOMIC_RELAXED)) return;
  pthread_mutex_lock(&redirecting);
  dl_iterate_phdr(redirect_object, (void *)own.dli_fname);
  __atomic_store_n(&seen_loads, loads, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&redirecting);
}

/* ---- why a process that has loaded an MPI was not measured ----
 *
 * The reason is the name of a file in the measurement's folder, and its content is the library that
 * the reason is about: `haloscope measure` makes a line of it where nothing was measured. All
 * processes of a run may leave the same one. */

static int reason_left;

void hs_leave_reason(const char *reason, const char *about) {
  char path[PATH_MAX + 100];
  const char *folder = getenv("HALOSCOPE_MEASURE");
  reason_left = 1;
  if (folder == NULL || *folder == '\0') return;
  snprintf(path, sizeof path, "%s/.unmeasured-%s", folder, reason);
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  const ssize_t written = write(file, about, strlen(about));
  (void)written;
  close(file);
}

static const char *file_of(const void *address) {
  Dl_info where;
  return address && dladdr(address, &where) && where.dli_fname ? where.dli_fname : "";
}

/* Only the start of MPI tells the recorder that there is one. */
__attribute__((destructor)) static void on_exit_of_process(void) {
  struct hs_library mpi;
  const char *folder = getenv("HALOSCOPE_MEASURE");
  int begun = 0;
  if (folder == NULL || *folder == '\0' || reason_left || hs_recorder.mpi[0]) return;
  if (hs_find_mpi(&mpi) == 0) return;
  int (*has_begun)(int *) = (int (*)(int *))dlsym(mpi.handle, "PMPI_Initialized");
  if (has_begun == NULL) return;
  has_begun(&begun);
  const char *own = file_of((const void *)hs_leave_reason);
  const char *first = file_of(dlsym(RTLD_DEFAULT, "MPI_Init"));
  if (!begun) hs_leave_reason("no-init", mpi.path);
  else if (*first && strcmp(first, own) != 0) hs_leave_reason("other-tool", first);
  else hs_leave_reason("opened", mpi.path);
}
