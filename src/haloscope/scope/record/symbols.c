/* Names of addresses: the function that holds an address, and the address within its file.
 *
 * Functions that are not exported are found in the symbol table of the file itself, which is read
 * once for each file. Nothing here may be called with the recorder's lock: the dynamic linker has
 * a lock of its own, which a thread that loads a library holds while it runs our hooks. */
#include "location.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SECTIONS = 4096 };
static const uint64_t MOST_TABLE = 1ull << 28; /* bytes of a symbol table that is still read */

struct symbol {
  uint64_t begin, size; /* begin: address before loading */
  uint32_t name;
};

struct object {
  uintptr_t base; /* added to addresses in the file */
  const void *map;
  char name[256];
  struct symbol *symbols;
  size_t count;
  char *names;
  uint64_t names_length;
  struct object *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;

static void copy_base_name(char *name, size_t room, const char *path) {
  const char *slash = strrchr(path, '/');
  struct text text;
  text_open(&text, name, room);
  text_put(&text, slash ? slash + 1 : path);
}

/* Where an address lies: link map, path for reading, base name for people. */
static struct link_map *locate(const void *address, Dl_info *info, char *path) {
  struct link_map *map = NULL;
  if (!address || !dladdr1(address, info, (void **)&map, RTLD_DL_LINKMAP) || !map) return NULL;
  path[0] = 0;
  if (map->l_name && *map->l_name) {
    strncat(path, map->l_name, PATH_MAX - 1);
  } else {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    if (length <= 0 && info->dli_fname) strncat(path, info->dli_fname, PATH_MAX - 1);
  }
  return map;
}

int symbols_site(const void *address, char *place, size_t room) {
  Dl_info info;
  char path[PATH_MAX], name[256];
  struct text text;
  text_open(&text, place, room);
  if (!locate(address, &info, path)) return 0;
  copy_base_name(name, sizeof name, path);
  text_format(&text, "%s+0x%lx", name, (uintptr_t)address - (uintptr_t)info.dli_fbase);
  return 1;
}

/* --- symbol tables ------------------------------------------------------------------------- */

static int read_all(int fd, void *room, uint64_t length, uint64_t offset) {
  char *at = room;
  while (length) {
    ssize_t count = pread(fd, at, length, (off_t)offset);
    if (count <= 0) return 0;
    at += count;
    offset += (uint64_t)count;
    length -= (uint64_t)count;
  }
  return 1;
}

static void sort_symbols(struct symbol *symbols, size_t count) {
  /* Heap sort: the library's own may call malloc. */
  for (size_t built = count / 2, end = count; end > 1;) {
    struct symbol moved;
    if (built > 0) {
      moved = symbols[--built];
    } else {
      end--;
      moved = symbols[end];
      symbols[end] = symbols[0];
    }
    size_t hole = built;
    for (size_t child; (child = 2 * hole + 1) < end; hole = child) {
      if (child + 1 < end && symbols[child + 1].begin > symbols[child].begin) child++;
      if (symbols[child].begin <= moved.begin) break;
      symbols[hole] = symbols[child];
    }
    symbols[hole] = moved;
  }
}

#if __SIZEOF_POINTER__ == 8
typedef Elf64_Ehdr elf_header;
typedef Elf64_Shdr elf_section;
typedef Elf64_Sym elf_symbol;
#define SYMBOL_TYPE ELF64_ST_TYPE
#else
typedef Elf32_Ehdr elf_header;
typedef Elf32_Shdr elf_section;
typedef Elf32_Sym elf_symbol;
#define SYMBOL_TYPE ELF32_ST_TYPE
#endif

static void read_symbols(struct object *object, int fd) {
  elf_header header;
  if (!read_all(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
      header.e_shentsize != sizeof(elf_section) || header.e_shnum > MOST_SECTIONS)
    return;
  elf_section *sections = hs_keep(header.e_shnum * sizeof *sections);
  if (!sections || !read_all(fd, sections, header.e_shnum * sizeof *sections, header.e_shoff))
    return;
  const elf_section *table = NULL;
  for (int i = 0; i < header.e_shnum; i++)
    if (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !table))
      table = &sections[i];
  if (!table || table->sh_link >= header.e_shnum || table->sh_entsize != sizeof(elf_symbol)) return;
  const elf_section *strings = &sections[table->sh_link];
  if (table->sh_size > MOST_TABLE || strings->sh_size > MOST_TABLE || !strings->sh_size) return;
  size_t listed = table->sh_size / sizeof(elf_symbol);
  elf_symbol *all = hs_keep(table->sh_size + 1);
  object->names = hs_keep(strings->sh_size + 1);
  object->symbols = hs_keep(listed * sizeof *object->symbols + 1);
  if (!all || !object->names || !object->symbols ||
      !read_all(fd, all, table->sh_size, table->sh_offset) ||
      !read_all(fd, object->names, strings->sh_size, strings->sh_offset))
    return;
  object->names_length = strings->sh_size;
  for (size_t i = 0; i < listed; i++) {
    int type = SYMBOL_TYPE(all[i].st_info);
    if ((type == STT_FUNC || type == STT_GNU_IFUNC) && all[i].st_shndx != SHN_UNDEF &&
        all[i].st_name < strings->sh_size)
      object->symbols[object->count++] =
          (struct symbol){all[i].st_value, all[i].st_size, (uint32_t)all[i].st_name};
  }
  sort_symbols(object->symbols, object->count);
}

static struct object *object_of(const struct link_map *map, const Dl_info *info,
                                const char *path) {
  pthread_mutex_lock(&lock);
  struct object *object = objects;
  while (object && (object->map != info->dli_fbase || object->base != map->l_addr))
    object = object->next;
  if (!object && (object = hs_keep(sizeof *object))) {
    object->base = map->l_addr;
    object->map = info->dli_fbase;
    copy_base_name(object->name, sizeof object->name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      read_symbols(object, fd);
      close(fd);
    }
    object->next = objects;
    objects = object;
  }
  pthread_mutex_unlock(&lock);
  return object;
}

static const struct symbol *symbol_at(const struct object *object, uint64_t address) {
  size_t low = 0, high = object->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (object->symbols[middle].begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  /* Aliases begin at one address: the first of them that is large enough. */
  const struct symbol *symbol = NULL;
  for (uint64_t begin = 0; low > 0; low--) {
    const struct symbol *candidate = &object->symbols[low - 1];
    if (symbol && candidate->begin != begin) break;
    if (address - candidate->begin < (candidate->size ? candidate->size : 1)) {
      symbol = candidate;
      begin = candidate->begin;
    } else if (!symbol && address - candidate->begin > 1 << 20) {
      break;
    }
  }
  return symbol;
}

/* Name without the suffix that a compiler appends to parts of a function: foo.cold, foo.part.0. */
static const char *without_suffix(const char *name) {
  static const char *const suffixes[] = {".cold", ".part.", ".constprop.", ".isra.", ".lto_priv."};
  size_t length = strlen(name);
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    const char *suffix = strstr(name + (length > 0), suffixes[i]);
    if (suffix && (size_t)(suffix - name) < length) length = (size_t)(suffix - name);
  }
  char *kept = hs_keep(length + 1);
  return kept ? memcpy(kept, name, length) : name;
}

/* The name as the source has it, by the C++ library of the program itself. */
static const char *readable(const char *name) {
  typedef char *demangler(const char *, char *, size_t *, int *);
  if (strncmp(name, "_Z", 2) != 0) return name;
  demangler *demangle = (demangler *)(uintptr_t)dlsym(RTLD_DEFAULT, "__cxa_demangle");
  int status = -1;
  char *plain = demangle ? demangle(name, NULL, NULL, &status) : NULL;
  if (!plain || status != 0) return name;
  size_t length = strlen(plain) + 1;
  char *kept = hs_keep(length);
  if (kept) memcpy(kept, plain, length);
  free(plain);
  return kept ? kept : name;
}

static const char *with_offset(const char *object, uintptr_t offset) {
  size_t room = strlen(object) + 24;
  char *kept = hs_keep(room);
  if (!kept) return "";
  struct text text;
  text_open(&text, kept, room);
  text_format(&text, "%s+0x%lx", object, offset);
  return kept;
}

/* The function that holds an address. Where none is known, the address is its name. */
int symbols_find(const void *address, struct function *function) {
  Dl_info info;
  char path[PATH_MAX];
  struct link_map *map = locate(address, &info, path);
  if (!map) return 0;
  struct object *object = object_of(map, &info, path);
  if (!object) return 0;
  function->object = object->name;
  function->base = info.dli_fbase;
  const struct symbol *symbol = symbol_at(object, (uintptr_t)address - object->base);
  if (symbol) {
    function->begin = (const void *)(uintptr_t)(symbol->begin + object->base);
    function->linked = without_suffix(object->names + symbol->name);
  } else if (info.dli_sname) {
    function->begin = info.dli_saddr;
    function->linked = without_suffix(info.dli_sname);
  } else {
    function->begin = address;
    function->linked = with_offset(object->name, (uintptr_t)address - (uintptr_t)info.dli_fbase);
  }
  function->name = readable(function->linked);
  return 1;
}

/* --- what is known of addresses of code: a table that is read without a lock ---------------------- */

static pthread_mutex_t addresses_lock = PTHREAD_MUTEX_INITIALIZER;

struct address_table {
  uint32_t mask, count;
  struct address_known slots[];
};

static inline uint32_t place_of(const void *key) {
  return (uint32_t)(((uintptr_t)key * 0x9e3779b97f4a7c15ull) >> 32);
}

const struct address_known *addresses_find(struct address_table *const *where, const void *key) {
  const struct address_table *table = __atomic_load_n(where, __ATOMIC_ACQUIRE);
  if (UNLIKELY(!table)) return NULL;
  for (uint32_t slot = place_of(key) & table->mask;; slot = (slot + 1) & table->mask) {
    const void *there = __atomic_load_n(&table->slots[slot].key, __ATOMIC_ACQUIRE);
    if (LIKELY(there == key)) return &table->slots[slot];
    if (!there) return NULL;
  }
}

static void put(struct address_table *table, const struct address_known *known) {
  uint32_t slot = place_of(known->key) & table->mask;
  while (table->slots[slot].key) slot = (slot + 1) & table->mask;
  table->slots[slot].region = known->region;
  table->slots[slot].name = known->name;
  __atomic_store_n(&table->slots[slot].key, known->key, __ATOMIC_RELEASE);
  table->count++;
}

/* The first word on a key stays. A table that has become too small is left to those who read it. */
void addresses_keep(struct address_table **where, struct address_known known) {
  pthread_mutex_lock(&addresses_lock);
  struct address_table *table = *where;
  if (!addresses_find(where, known.key)) {
    if (!table || table->count * 2 > table->mask) {
      uint32_t mask = table ? table->mask * 2 + 1 : 1023;
      struct address_table *larger = hs_keep(sizeof *larger + (mask + 1ul) * sizeof *larger->slots);
      if (larger) {
        larger->mask = mask;
        for (uint32_t i = 0; table && i <= table->mask; i++)
          if (table->slots[i].key) put(larger, &table->slots[i]);
        __atomic_store_n(where, larger, __ATOMIC_RELEASE);
      }
      table = larger;
    }
    if (table) put(table, &known);
  }
  pthread_mutex_unlock(&addresses_lock);
}
