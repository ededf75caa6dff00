/* A strict JSON scanner for formats whose shape is known: the caller asks for what has to come
 * next, so nothing nests deeper than the caller does. */
#ifndef NEAP_IO_JSON_H
#define NEAP_IO_JSON_H

#include "backend.h"

typedef struct neap__json {
  char *text; /* bytes of it and a zero after them; strings are decoded in place */
  size_t bytes, at;
  const char *expected; /* after a failure; text[at] is what was found instead */
} neap__json;

/* All return 0, or -1 with expected set and at on what was found. White space before is skipped. */
int neap__json_take(neap__json *json, char character, const char *expected);
/* Takes ',' (1) or the closing character (0). */
int neap__json_more(neap__json *json, char closing);
/* *start: where the decoded string is, with a zero after it. \u0000 is an error. */
int neap__json_string(neap__json *json, const char *expected, size_t *start);
/* A whole number 0..2^53, written in digits only. */
int neap__json_whole(neap__json *json, uint64_t *number);
/* The next character that is not white space; 0 at the end. */
char neap__json_peek(neap__json *json);
/* "'[' at byte 12", for messages. */
const char *neap__json_found(const neap__json *json, char text[64]);

/* Length of the UTF-8 sequence at text; 0: overlong, a surrogate, cut off, beyond U+10FFFF. */
int neap__utf8_sequence(const char *text, size_t bytes);
/* Name between quotes for messages: what is no printable ASCII or UTF-8 is '?', long ones are cut.
 */
const char *neap__json_quoted(const char *name, char text[96]);

#endif
