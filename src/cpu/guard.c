/* Guards of device memory in sanitized builds (make SAN=1). The core cuts its blocks out of large
 * segments, so AddressSanitizer alone sees neither a kernel that runs from one tensor into the next
 * nor one that touches freed memory. Here all that is not in use is poisoned and filled with NaN:
 * a touch is reported at once, a write by code without instrumentation (the GEMM library) when the
 * block next changes hands, and a read of what was never written shows in the numbers.
 */
#include "cpu/cpu.h"

#ifdef NEAP_GUARD
#include <sanitizer/asan_interface.h>
#include <string.h>

enum { FILLER = 0xFF }; /* every poisoned byte holds it; four of them are a NaN */

static void check_filler(const unsigned char *bytes, const unsigned char *end) {
  for (; bytes < end; bytes++) {
    if (*bytes != FILLER) {
      __asan_report_error(__builtin_return_address(0), __builtin_frame_address(0),
                          __builtin_frame_address(0), (void *)(uintptr_t)bytes, 1, 1);
    }
  }
}

void neap__cpu_guard(void *context, void *data, size_t used, size_t bytes) {
  (void)context;
  unsigned char *begin = data, *end = begin + bytes;
  /* nothing is poisoned in a segment that is new; what was poisoned lies behind what was in use */
  unsigned char *poisoned = bytes > 0 ? __asan_region_is_poisoned(begin, bytes) : NULL;
  poisoned = poisoned != NULL ? poisoned : end;
  __asan_unpoison_memory_region(poisoned, (size_t)(end - poisoned));
  check_filler(poisoned, end);
  memset(begin, FILLER, (size_t)(poisoned - begin));
  __asan_poison_memory_region(begin + used, bytes - used);
}

void neap__cpu_unguard(void *data, size_t bytes) {
  unsigned char *begin = data;
  __asan_unpoison_memory_region(begin, bytes);
  check_filler(begin, begin + bytes);
}
#endif
