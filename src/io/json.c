/* The strict JSON scanner. */
#include <stdio.h>
#include <string.h>

#include "io/json.h"

static int fail(neap__json *json, const char *expected) {
  json->expected = expected;
  return -1;
}

int neap__utf8_sequence(const char *text, size_t bytes) {
  const unsigned char *s = (const unsigned char *)text;
  /* of the second byte: it excludes overlong forms, surrogates and what is beyond U+10FFFF */
  unsigned low = 0x80, high = 0xbf;
  int n;
  if (bytes == 0) {
    return 0;
  }
  if (s[0] < 0x80) {
    return 1;
  }
  if (s[0] >= 0xc2 && s[0] <= 0xdf) {
    n = 2;
  } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
    n = 3;
    low = s[0] == 0xe0 ? 0xa0 : low;
    high = s[0] == 0xed ? 0x9f : high;
  } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
    n = 4;
    low = s[0] == 0xf0 ? 0x90 : low;
    high = s[0] == 0xf4 ? 0x8f : high;
  } else {
    return 0;
  }
  if (bytes < (size_t)n || s[1] < low || s[1] > high) {
    return 0;
  }
  for (int i = 2; i < n; i++) {
    if (s[i] < 0x80 || s[i] > 0xbf) {
      return 0;
    }
  }
  return n;
}

const char *neap__json_quoted(const char *name, char text[96]) {
  enum { MOST = 64 };
  size_t left = strlen(name), at = 1;
  text[0] = '\'';
  while (left > 0 && at < MOST) {
    int n = neap__utf8_sequence(name, left);
    if (n == 0 || (unsigned char)*name < 0x20 || *name == 0x7f) {
      text[at++] = '?';
      n = 1;
    } else {
      memcpy(text + at, name, (size_t)n);
      at += (size_t)n;
    }
    name += n;
    left -= (size_t)n;
  }
  strcpy(text + at, left > 0 ? "...'" : "'");
  return text;
}

const char *neap__json_found(const neap__json *json, char text[64]) {
  const char *s = json->text + json->at;
  unsigned char c = (unsigned char)*s;
  int n = 0;
  if (json->at >= json->bytes) {
    snprintf(text, 64, "the end of the header");
    return text;
  }
  /* a number or a word as a whole */
  while (n < 24 && strchr("+-.0123456789", s[n]) != NULL && s[n] != '\0') {
    n++;
  }
  while (n < 24 && ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
                    (n > 0 && strchr("+-.0123456789", s[n]) != NULL && s[n] != '\0'))) {
    n++;
  }
  if (n > 0 || (c > 0x20 && c < 0x7f)) {
    snprintf(text, 64, "'%.*s' at byte %zu", n > 0 ? n : 1, s, json->at);
  } else {
    snprintf(text, 64, "0x%02x at byte %zu", c, json->at);
  }
  return text;
}

static void skip_space(neap__json *json) {
  for (char c = json->text[json->at]; c == ' ' || c == '\t' || c == '\n' || c == '\r';) {
    c = json->text[++json->at];
  }
}

char neap__json_peek(neap__json *json) {
  skip_space(json);
  return json->text[json->at];
}

int neap__json_take(neap__json *json, char character, const char *expected) {
  if (neap__json_peek(json) != character) {
    return fail(json, expected);
  }
  json->at++;
  return 0;
}

int neap__json_more(neap__json *json, char closing) {
  char next = neap__json_peek(json);
  if (next != ',' && next != closing) {
    return fail(json, closing == '}' ? "',' or '}'" : "',' or ']'");
  }
  json->at++;
  return next == ',';
}

/* four hexadecimal digits, or -1 */
static int32_t hex4(const char *s) {
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    int digit = s[i] >= '0' && s[i] <= '9'   ? s[i] - '0'
                : s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10
                : s[i] >= 'A' && s[i] <= 'F' ? s[i] - 'A' + 10
                                             : -1;
    if (digit < 0) {
      return -1; /* also at the zero that ends the text */
    }
    value = value * 16 + digit;
  }
  return value;
}

static size_t put_utf8(char *to, int32_t code) {
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    to[0] = (char)(0xc0 | code >> 6);
    to[1] = (char)(0x80 | (code & 0x3f));
    return 2;
  }
  if (code < 0x10000) {
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 0x3f));
    to[2] = (char)(0x80 | (code & 0x3f));
    return 3;
  }
  to[0] = (char)(0xf0 | code >> 18);
  to[1] = (char)(0x80 | (code >> 12 & 0x3f));
  to[2] = (char)(0x80 | (code >> 6 & 0x3f));
  to[3] = (char)(0x80 | (code & 0x3f));
  return 4;
}

/* at is on the backslash. Writes what it stands for to *to, which is never behind at. */
static int unescape(neap__json *json, size_t *to) {
  static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
  char *s = json->text + json->at;
  const char *known = s[1] == '\0' ? NULL : strchr(plain, s[1]);
  if (known != NULL) {
    json->text[(*to)++] = meaning[known - plain];
    json->at += 2;
    return 0;
  }
  if (s[1] != 'u') {
    return fail(json, "an escape that JSON knows");
  }
  int32_t code = hex4(s + 2), low;
  size_t length = 6;
  if (code < 0) {
    return fail(json, "four hexadecimal digits after \\u");
  }
  if (code >= 0xd800 && code <= 0xdfff) {
    low = code < 0xdc00 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
      return fail(json, "both halves of a surrogate pair");
    }
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    length = 12;
  }
  if (code == 0) {
    return fail(json, "a string without \\u0000");
  }
  *to += put_utf8(json->text + *to, code);
  json->at += length;
  return 0;
}

int neap__json_string(neap__json *json, const char *expected, size_t *start) {
  if (neap__json_take(json, '"', expected) != 0) {
    return -1;
  }
  char *text = json->text;
  size_t to = *start = json->at;
  for (;;) {
    /* plain text at once; it moves only after an escape */
    size_t from = json->at, n = 0;
    unsigned char c;
    while ((c = (unsigned char)text[from + n]) != '"' && c != '\\' && c >= 0x20 && c < 0x80) {
      n++;
    }
    if (to != from) {
      memmove(text + to, text + from, n);
    }
    to += n;
    json->at += n;
    if (c == '"') {
      break;
    }
    if (c == '\\') {
      if (unescape(json, &to) != 0) {
        return -1;
      }
      continue;
    }
    if (c < 0x20) {
      return fail(json, "a string without control characters that ends in '\"'");
    }
    int length = neap__utf8_sequence(text + json->at, json->bytes - json->at);
    if (length == 0) {
      return fail(json, "valid UTF-8");
    }
    memmove(text + to, text + json->at, (size_t)length);
    to += (size_t)length;
    json->at += (size_t)length;
  }
  text[to] = '\0';
  json->at++;
  return 0;
}

int neap__json_whole(neap__json *json, uint64_t *number) {
  static const char expected[] = "a whole number from 0 to 2^53";
  skip_space(json);
  size_t start = json->at, at = start;
  const char *text = json->text;
  uint64_t value = 0;
  /* 17 digits are more than 2^53 and no overflow */
  while (text[at] >= '0' && text[at] <= '9' && at - start < 17) {
    value = value * 10 + (uint64_t)(text[at++] - '0');
  }
  if (at == start || value > (UINT64_C(1) << 53) || (text[start] == '0' && at > start + 1) ||
      text[at] == '.' || text[at] == 'e' || text[at] == 'E') {
    return fail(json, expected);
  }
  *number = value;
  json->at = at;
  return 0;
}
