/* What programs call: functions instrumented by the compiler, and regions of the user.
 *
 * Programs reach the functions named haloscope_* through haloscope.h, haloscope.f90 or Python; they
 * are weak there, so that a program that is not measured does without them. */
#include "location.h"

#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

static struct address_table *functions, *named;

/* --- functions -------------------------------------------------------------------------------- */

static __attribute__((noinline)) uint32_t define_function(const void *address) {
  struct function function;
  uint32_t region = HS_FILTERED;
  if (symbols_find(address, &function))
    region = definitions_region(function.name, function.linked, "function", "other",
                                function.object, 0);
  addresses_keep(&functions, (struct address_known){address, region, NULL});
  return region;
}

PUBLIC void __cyg_profile_func_enter(void *function, void *site);
PUBLIC void __cyg_profile_func_exit(void *function, void *site);

PUBLIC void __cyg_profile_func_enter(void *function, void *site) {
  struct location *me = here();
  if (UNLIKELY(!me || me->busy)) return;
  const struct address_known *known = addresses_find(&functions, function);
  if (LIKELY(known && known->region == HS_FILTERED)) return;
  location_take(me);
  uint32_t region = known ? known->region : define_function(function);
  if (region != HS_FILTERED) location_enter(me, region, site, __builtin_dwarf_cfa());
  location_give(me);
}

PUBLIC void __cyg_profile_func_exit(void *function, void *site) {
  (void)site;
  struct location *me = hs_me;
  if (UNLIKELY(!me || me->busy)) return;
  const struct address_known *known = addresses_find(&functions, function);
  if (!known || known->region == HS_FILTERED) return;
  location_take(me);
  location_leave(me, known->region);
  location_give(me);
}

/* --- regions of the user ---------------------------------------------------------------------- */

static void enter_user(uint32_t region, const void *site, const char *frame) {
  struct location *me = here();
  if (UNLIKELY(region == HS_FILTERED) || !location_take(me)) return;
  location_enter(me, region, site, frame);
  location_give(me);
}

PUBLIC uint32_t haloscope_region(const char *name);
PUBLIC void haloscope_enter(uint32_t region);
PUBLIC void haloscope_enter_script(uint32_t region);
PUBLIC void haloscope_leave(uint32_t region);
PUBLIC void haloscope_begin(const char *name, size_t length);
PUBLIC void haloscope_end(const char *name, size_t length);
PUBLIC void haloscope_pause(void);
PUBLIC void haloscope_resume(void);
PUBLIC int haloscope_recording(void);

PUBLIC uint32_t haloscope_region(const char *name) {
  return hs_region(name, "user", "other", "", 0);
}

PUBLIC void haloscope_enter(uint32_t region) {
  enter_user(region, __builtin_return_address(0), __builtin_dwarf_cfa());
}

/* From an interpreter: the place that calls is its own, and says nothing. */
PUBLIC void haloscope_enter_script(uint32_t region) { enter_user(region, NULL, NULL); }

PUBLIC void haloscope_leave(uint32_t region) { hs_leave(region); }

/* A region by its name, which need not end in a zero byte: Fortran. */
static uint32_t region_named(const char *name, size_t length) {
  uint64_t hash = 0xcbf29ce484222325ull;
  char text[256];
  while (length && name[length - 1] == ' ') length--;
  if (length >= sizeof text) length = sizeof text - 1;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3ull;
  const void *key = (const void *)(uintptr_t)(hash | 1);
  memcpy(text, name, length);
  text[length] = 0;
  const struct address_known *known = addresses_find(&named, key);
  if (known && strcmp(known->name, text) == 0) return known->region;
  uint32_t region = haloscope_region(text);
  char *kept = known ? NULL : hs_keep(length + 1);
  if (kept) {
    memcpy(kept, text, length);
    addresses_keep(&named, (struct address_known){key, region, kept});
  }
  return region;
}

PUBLIC void haloscope_begin(const char *name, size_t length) {
  if (here()) enter_user(region_named(name, length), NULL, __builtin_dwarf_cfa());
}

PUBLIC void haloscope_end(const char *name, size_t length) {
  if (here()) hs_leave(region_named(name, length));
}

PUBLIC void haloscope_pause(void) { hs_pause(); }
PUBLIC void haloscope_resume(void) { hs_resume(); }
PUBLIC int haloscope_recording(void) { return hs_recording(); }
