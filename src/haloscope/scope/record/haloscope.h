/* Regions of a program that Haloscope measures: include this file, link nothing.
 *
 *   HALOSCOPE_REGION_BEGIN("solve");
 *   ...
 *   HALOSCOPE_REGION_END("solve");
 *
 * Regions nest, on each thread for itself. Under `haloscope measure` they are recorded; otherwise
 * each costs a test of an address. HALOSCOPE_PAUSE() and HALOSCOPE_RESUME() switch the measurement
 * off and on for the whole process; they are counted. In C++, HALOSCOPE_REGION("solve") is a
 * region until the end of the block.
 */
#ifndef HALOSCOPE_H
#define HALOSCOPE_H

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((weak)) unsigned haloscope_region(const char *name);
__attribute__((weak)) void haloscope_enter(unsigned region);
__attribute__((weak)) void haloscope_leave(unsigned region);
__attribute__((weak)) void haloscope_pause(void);
__attribute__((weak)) void haloscope_resume(void);
__attribute__((weak)) int haloscope_recording(void);

#ifdef __cplusplus
}
#endif

/* The number of a region is asked for once at each place; 0 stands for not yet. */
#define HALOSCOPE_AT_REGION_(function, name)                                     \
  do {                                                                           \
    if (haloscope_region && function) {                                          \
      static unsigned haloscope_number_;                                         \
      unsigned haloscope_known_ = __atomic_load_n(&haloscope_number_, 0);        \
      if (!haloscope_known_) {                                                   \
        haloscope_known_ = haloscope_region(name) + 1u;                          \
        __atomic_store_n(&haloscope_number_, haloscope_known_, 0);               \
      }                                                                          \
      function(haloscope_known_ - 1u);                                           \
    }                                                                            \
  } while (0)

#define HALOSCOPE_REGION_BEGIN(name) HALOSCOPE_AT_REGION_(haloscope_enter, name)
#define HALOSCOPE_REGION_END(name) HALOSCOPE_AT_REGION_(haloscope_leave, name)

#define HALOSCOPE_PAUSE()                    \
  do {                                       \
    if (haloscope_pause) haloscope_pause();  \
  } while (0)
#define HALOSCOPE_RESUME()                    \
  do {                                        \
    if (haloscope_resume) haloscope_resume(); \
  } while (0)
#define HALOSCOPE_RECORDING() (haloscope_recording ? haloscope_recording() : 0)

#ifdef __cplusplus
namespace haloscope {
class Region {
 public:
  __attribute__((no_instrument_function)) explicit Region(const char *name)
      : number_(haloscope_region ? haloscope_region(name) : 0) {
    if (haloscope_enter) haloscope_enter(number_);
  }
  __attribute__((no_instrument_function)) ~Region() {
    if (haloscope_leave) haloscope_leave(number_);
  }
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;

 private:
  unsigned number_;
};
}  // namespace haloscope
#define HALOSCOPE_JOIN_(a, b) a##b
#define HALOSCOPE_NAME_(line) HALOSCOPE_JOIN_(haloscope_region_at_, line)
#define HALOSCOPE_REGION(name) haloscope::Region HALOSCOPE_NAME_(__LINE__)(name)
#endif

#endif
