/* Texts of the recorder's files: JSON strings and numbers, written without malloc, locale or
 * streams, so that a signal handler may write them too. What does not fit is cut off. */
#include "location.h"

#include <math.h>
#include <string.h>

void text_open(struct text *text, char *room, size_t size) {
  text->begin = text->at = room;
  text->end = room + size - 1;
  *room = 0;
}

void text_put(struct text *text, const char *plain) {
  while (*plain && text->at < text->end) *text->at++ = *plain++;
  *text->at = 0;
}

/* Length of the UTF-8 character that begins here, 0 where there is none. */
static int utf8_length(const unsigned char *c) {
  int further = c[0] < 0x80 ? 0 : c[0] >= 0xc2 && c[0] < 0xe0 ? 1 : (c[0] & 0xf0) == 0xe0 ? 2
                : c[0] >= 0xf0 && c[0] < 0xf5                 ? 3
                                                              : -1;
  for (int i = 1; i <= further; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) ||
      (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90))
    return 0;
  return further + 1;
}

/* A text as the content of a JSON string. */
static void put_escaped(struct text *text, const char *content) {
  static const char digits[] = "0123456789abcdef";
  for (const unsigned char *c = (const unsigned char *)content; *c;) {
    char piece[8] = {0};
    int length = utf8_length(c);
    if (*c == '"' || *c == '\\') {
      piece[0] = '\\';
      piece[1] = (char)*c;
    } else if (*c < 0x20 || *c == 0x7f) {
      memcpy(piece, "\\u00", 4);
      piece[4] = digits[*c >> 4];
      piece[5] = digits[*c & 15];
    } else if (length == 0) {
      memcpy(piece, "\\ufffd", 6);
    } else {
      memcpy(piece, c, (size_t)length);
    }
    c += length ? length : 1;
    if (text->end - text->at < 9) break;
    text_put(text, piece);
  }
}

static void put_number(struct text *text, uint64_t number, unsigned base) {
  static const char digits[] = "0123456789abcdef";
  char room[24];
  char *at = room + sizeof room - 1;
  *at = 0;
  do *--at = digits[number % base];
  while (number /= base);
  text_put(text, at);
}

static void put_integer(struct text *text, int64_t number) {
  if (number < 0) text_put(text, "-");
  put_number(text, number < 0 ? -(uint64_t)number : (uint64_t)number, 10);
}

static void put_real(struct text *text, double number) {
  if (!(number >= 0)) number = 0;
  if (number > 1e18) number = 1e18;
  uint64_t whole = (uint64_t)number;
  uint64_t part = (uint64_t)((number - (double)whole) * 1e9 + 0.5);
  if (part >= 1000000000u) {
    whole++;
    part = 0;
  }
  put_number(text, whole, 10);
  char digits[12] = ".000000000";
  for (int i = 9; i > 0; i--, part /= 10) digits[i] = (char)('0' + part % 10);
  text_put(text, digits);
}

/* A tenth of a nanosecond is enough: a clock does not see more. */
static void put_seconds(struct text *text, double seconds) {
  put_real(text, seconds * 1e9);
  if (text->at - text->begin > 8) {
    text->at -= 8;
    *text->at = 0;
  }
  text_put(text, "e-9");
}

void text_vformat(struct text *text, const char *format, va_list values) {
  for (const char *at = format;; at++) {
    for (; *at && *at != '%'; at++)
      if (text->at < text->end) *text->at++ = *at;
    *text->at = 0;
    if (!*at) return;
    const int is_quoted = at > format && at[-1] == '"', is_long = at[1] == 'l';
    at += 1 + is_long;
    switch (*at) {
      case 's':
        (is_quoted ? put_escaped : text_put)(text, va_arg(values, const char *));
        break;
      case 'd': put_integer(text, is_long ? va_arg(values, long) : va_arg(values, int)); break;
      case 'e': put_seconds(text, va_arg(values, double)); break;
      case 'f': put_real(text, va_arg(values, double)); break;
      default:
        put_number(text, is_long ? va_arg(values, unsigned long) : va_arg(values, unsigned),
                   *at == 'x' ? 16 : 10);
    }
  }
}

void text_format(struct text *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  text_vformat(text, format, values);
  va_end(values);
}
