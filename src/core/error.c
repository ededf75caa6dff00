/* The last error of a thread, and the one list of error kinds. */
#include <stdarg.h>
#include <stdio.h>

#include "backend.h"

static _Thread_local char last_error[1024];

int neap__error(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return code;
}

const char *neap_last_error(void) {
  return last_error;
}

const char *neap_error_name(int code) {
  switch (code) {
#define NEAP_X(name, number, text)                                                                 \
  case NEAP_ERR_##name:                                                                            \
    return text;
    NEAP_ERRORS(NEAP_X)
#undef NEAP_X
  default:
    return "unknown error";
  }
}

int neap_version(void) {
  return NEAP_VERSION_MAJOR * 10000 + NEAP_VERSION_MINOR * 100 + NEAP_VERSION_PATCH;
}

int neap_abi(void) {
  return NEAP_ABI;
}

#ifndef NEAP_HEADER_SUM
#define NEAP_HEADER_SUM 0
#endif

double neap_header_sum(void) {
  return NEAP_HEADER_SUM;
}
