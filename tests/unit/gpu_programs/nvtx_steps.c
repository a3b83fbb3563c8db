/* Plays a program that marks ranges with NVTX, as that loads its tool; see the tests.
 *
 *   push:TEXT  push_ex:TEXT  push_wide:TEXT  push_empty  pop       without a domain
 *   domain:NAME  push_domain:TEXT  push_registered:TEXT  pop_domain
 *   push_payload  pop_payload                                      the extension for payloads
 *   numbered:COUNT                                                 ranges with names of their own */
#include <dlfcn.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { CORE = 1, CORE2 = 5, FUNCTIONS = 16, CALLBACKS = 1, TEXT = 1, REGISTERED = 3 };
enum { PUSH_EX = 8, PUSH_A = 9, PUSH_W = 10, POP = 11 };
enum { DOMAIN_PUSH = 4, DOMAIN_POP = 5, REGISTER_A = 10, DOMAIN_A = 12 };
enum { PAYLOAD = 2, PUSH_PAYLOAD = 3, POP_PAYLOAD = 4, COMPATIBLE_WITH = 0x0103 };

typedef void (*function)(void);
static function core[FUNCTIONS], core2[FUNCTIONS];
static function *core_slots[FUNCTIONS], *core2_slots[FUNCTIONS];

struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_kind;
  uint32_t color;
  int32_t payload_kind, reserved;
  uint64_t payload;
  int32_t message_kind;
  const void *message;
};

static int functions_of(int module, function ***table, unsigned *count) {
  *table = module == CORE ? core_slots : core2_slots;
  *count = FUNCTIONS;
  return module == CORE || module == CORE2;
}

static const void *table_of(uint32_t id) {
  static const struct {
    size_t size;
    int (*functions_of)(int, function ***, unsigned *);
  } table = {sizeof table, functions_of};
  return id == CALLBACKS ? &table : NULL;
}

static intptr_t payload_functions[FUNCTIONS];
struct segment {
  size_t id, count;
  intptr_t *functions;
};
struct extension {
  uint16_t version, size, module, compatible_with;
  size_t segment_count;
  struct segment *segments;
  intptr_t (*get_export_function)(uint32_t);
  const void *types;
};

static int load_extension(void *tool) {
  struct segment segment = {0, FUNCTIONS, payload_functions};
  struct extension given = {3, sizeof given, PAYLOAD, COMPATIBLE_WITH, 1, &segment, NULL, NULL};
  int (*initialize)(struct extension *) =
      (int (*)(struct extension *))dlsym(tool, "InitializeInjectionNvtxExtension");
  return initialize && initialize(&given);
}

static void *domain;

static const struct attributes *told(int kind, const void *message) {
  static struct attributes given = {.version = 2, .size = sizeof given};
  given.message_kind = kind;
  given.message = message;
  return &given;
}

static void push(const char *text) { ((int (*)(const char *))core[PUSH_A])(text); }
static void pop(void) { ((int (*)(void))core[POP])(); }
static void push_ex(const struct attributes *given) {
  ((int (*)(const struct attributes *))core[PUSH_EX])(given);
}
static void push_domain(const struct attributes *given) {
  ((int (*)(void *, const struct attributes *))core2[DOMAIN_PUSH])(domain, given);
}

static void step(const char *what) {
  const char *colon = strchr(what, ':');
  const char *rest = colon ? colon + 1 : "";
  if (strncmp(what, "push:", 5) == 0) push(rest);
  else if (strncmp(what, "push_ex:", 8) == 0) push_ex(told(TEXT, rest));
  else if (strncmp(what, "push_wide:", 10) == 0) {
    wchar_t wide[256];
    mbstowcs(wide, rest, 256);
    ((int (*)(const wchar_t *))core[PUSH_W])(wide);
  } else if (strcmp(what, "push_empty") == 0) push_ex(told(0, NULL));
  else if (strcmp(what, "pop") == 0) pop();
  else if (strncmp(what, "domain:", 7) == 0)
    domain = ((void *(*)(const char *))core2[DOMAIN_A])(rest);
  else if (strncmp(what, "push_domain:", 12) == 0) push_domain(told(TEXT, rest));
  else if (strncmp(what, "push_registered:", 16) == 0) {
    void *text = ((void *(*)(void *, const char *))core2[REGISTER_A])(domain, rest);
    push_domain(told(REGISTERED, text));
  } else if (strcmp(what, "push_payload") == 0 || strcmp(what, "pop_payload") == 0) {
    intptr_t slot = payload_functions[what[1] == 'u' ? PUSH_PAYLOAD : POP_PAYLOAD];
    ((int (*)(void *, const void *, size_t))slot)(domain, "", 1);
  } else if (strcmp(what, "pop_domain") == 0) ((int (*)(void *))core2[DOMAIN_POP])(domain);
  else if (strncmp(what, "numbered:", 9) == 0) {
    for (long i = 0, count = atol(rest); i < count; i++) {
      char text[32];
      snprintf(text, sizeof text, "range %ld", i);
      push(text);
      pop();
    }
  } else {
    fprintf(stderr, "what is %s?\n", what);
    exit(9);
  }
}

int main(int count, char **arguments) {
  setlocale(LC_ALL, "C.UTF-8");
  for (int i = 0; i < FUNCTIONS; i++) {
    core_slots[i] = &core[i];
    core2_slots[i] = &core2[i];
  }
  void *tool = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
  int (*initialize)(const void *(*)(uint32_t)) =
      tool ? (int (*)(const void *(*)(uint32_t)))dlsym(tool, "InitializeInjectionNvtx2") : NULL;
  if (!initialize || !initialize(table_of) || !load_extension(tool)) return 7;
  for (int i = 1; i < count; i++) step(arguments[i]);
  return 0;
}
