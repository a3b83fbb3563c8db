/* What `haloscope measure` has asked for: the settings of the environment. */
#include "location.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char **patterns;
static size_t pattern_count;
static const char *counters = "";

static char *copy(const char *text) {
  size_t length = strlen(text) + 1;
  char *kept = hs_keep(length);
  return kept ? memcpy(kept, text, length) : NULL;
}

/* A whole number within limits; -1 and a word about it where it is none. */
static long number_of(const char *name, long otherwise, long least, long most) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  errno = 0;
  long number = strtol(text, &end, 10);
  if (errno || *end || number < least || number > most) {
    char line[256];
    snprintf(line, sizeof line,
             "%s: invalid value \"%.40s\"; allowed: whole numbers from %ld to %ld; nothing is recorded",
             name, text, least, most);
    hs_say_once(line);
    return -1;
  }
  return number;
}

static int read_filter(const char *text) {
  char *kept = copy(text);
  size_t lines = 1;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  patterns = hs_keep(lines * sizeof *patterns);
  if (!kept || !patterns) return 0;
  for (char *line = kept, *rest; line; line = rest) {
    rest = strchr(line, '\n');
    if (rest) *rest++ = 0;
    size_t length = strlen(line);
    while (length && (line[length - 1] == ' ' || line[length - 1] == '\r')) line[--length] = 0;
    if (length && line[0] != '#') patterns[pattern_count++] = line;
  }
  return 1;
}

static int read_phase(const char *text) {
  const char *colon = strrchr(text, ':');
  size_t length = strlen(text);
  if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1)) {
    hs_recorder.phase_visit = strtoull(colon + 1, NULL, 10);
    length = (size_t)(colon - text);
  }
  if (length == 0 || length >= sizeof hs_recorder.phase) {
    hs_say_once("HALOSCOPE_PHASE: no name or a too long one; allowed: NAME or NAME:N; nothing is recorded");
    return 0;
  }
  memcpy(hs_recorder.phase, text, length);
  return 1;
}

int environment_read(void) {
  const char *folder = getenv("HALOSCOPE_MEASURE");
  if (!folder || !*folder) return 0;
  if (folder[0] != '/' || strlen(folder) > 3800) {
    hs_say_once("HALOSCOPE_MEASURE: not an absolute path of a folder; nothing is recorded");
    return 0;
  }
  hs_recorder.folder = copy(folder);
  const char *mode = getenv("HALOSCOPE_MODE");
  if (!mode || !*mode || strcmp(mode, "trace") == 0) {
    hs_recorder.mode = MODE_TRACE;
  } else if (strcmp(mode, "profile") == 0) {
    hs_recorder.mode = MODE_PROFILE;
  } else {
    char line[160];
    snprintf(line, sizeof line,
             "HALOSCOPE_MODE: unknown mode \"%.40s\"; allowed: trace or profile; nothing is recorded", mode);
    hs_say_once(line);
    return 0;
  }
  long mebibytes = number_of("HALOSCOPE_BUFFER", 16, 1, 1 << 16);
  long frames = number_of("HALOSCOPE_UNWIND", 0, 0, MOST_FRAMES);
  if (mebibytes < 0 || frames < 0 || !hs_recorder.folder) return 0;
  hs_recorder.window = (size_t)mebibytes << 20;
  hs_recorder.unwind = (uint32_t)frames;
  const char *filter = getenv("HALOSCOPE_FILTER");
  if (filter && *filter && !read_filter(filter)) return 0;
  const char *phase = getenv("HALOSCOPE_PHASE");
  if (phase && *phase && !read_phase(phase)) return 0;
  const char *wanted = getenv("HALOSCOPE_COUNTERS");
  if (wanted && *wanted) counters = copy(wanted);
  return counters != NULL;
}

const char *environment_counters(void) { return counters; }

int environment_filters_anything(void) { return pattern_count > 0; }

int environment_filters(const char *name, const char *other) {
  int filtered = 0;
  for (size_t i = 0; i < pattern_count; i++) {
    const char *pattern = patterns[i];
    int kept = *pattern == '!';
    int matches = fnmatch(pattern + kept, name, 0) == 0 ||
                  (other && fnmatch(pattern + kept, other, 0) == 0);
    if (matches && kept) return 0;
    filtered |= matches;
  }
  return filtered;
}
