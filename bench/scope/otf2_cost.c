/* Cost of an event with libotf2, the library that other tracers record with: nanoseconds.
 *
 * Started by recorder_cost.py. Prints a line as recorder_cost.c does: visits (enter and leave) are
 * written into memory, the clock is read for each of the two; the smallest of several rounds.
 */
#include <otf2/otf2.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

enum { ROUNDS = 20, TURNS = 20000 };

static OTF2_FlushType before(void *data, OTF2_FileType type, OTF2_LocationRef place, void *caller,
                             bool final) {
  (void)data, (void)type, (void)place, (void)caller, (void)final;
  return OTF2_FLUSH;
}
static OTF2_TimeStamp after(void *data, OTF2_FileType type, OTF2_LocationRef place) {
  (void)data, (void)type, (void)place;
  return __rdtsc();
}
static OTF2_FlushCallbacks flushes = {.otf2_pre_flush = before, .otf2_post_flush = after};

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  OTF2_Archive *archive =
      OTF2_Archive_Open(arguments[1], "cost", OTF2_FILEMODE_WRITE, 1 << 22, 1 << 22,
                        OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
  if (!archive) return 1;
  OTF2_Archive_SetFlushCallbacks(archive, &flushes, NULL);
  OTF2_Archive_SetSerialCollectiveCallbacks(archive);
  OTF2_Archive_OpenEvtFiles(archive);
  OTF2_EvtWriter *writer = OTF2_Archive_GetEvtWriter(archive, 0);
  if (!writer) return 1;
  double visit = 1e9, message = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    double begin = seconds();
    for (int turn = 0; turn < TURNS; turn++) {
      OTF2_EvtWriter_Enter(writer, NULL, __rdtsc(), 1);
      OTF2_EvtWriter_Leave(writer, NULL, __rdtsc(), 1);
    }
    double end = seconds();
    if (1e9 * (end - begin) / TURNS < visit) visit = 1e9 * (end - begin) / TURNS;
    begin = seconds();
    for (int turn = 0; turn < TURNS; turn++) {
      OTF2_EvtWriter_Enter(writer, NULL, __rdtsc(), 1);
      OTF2_EvtWriter_MpiSend(writer, NULL, __rdtsc(), 1, 0, 0, 800);
      OTF2_EvtWriter_Leave(writer, NULL, __rdtsc(), 1);
    }
    end = seconds();
    if (1e9 * (end - begin) / TURNS < message) message = 1e9 * (end - begin) / TURNS;
  }
  printf("visit %.2f\nvisit_with_message %.2f\n", visit, message);
  OTF2_Archive_CloseEvtWriter(archive, writer);
  OTF2_Archive_CloseEvtFiles(archive);
  OTF2_Archive_Close(archive);
  return 0;
}
