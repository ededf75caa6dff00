/* The one place that enters OpenMP for ranges. A team is always all threads and parts are static:
 * a team that changes its size costs more than it saves, and which thread computes what must
 * follow from the shape alone.
 */
#include "cpu/cpu.h"
#include <omp.h>

/* below this many element operations the fork costs more than it gains */
enum { LEAST_WORK = 16384, CACHE_LINE_FLOATS = 16 };

void neap__cpu_parallel(int64_t n, int64_t cost, neap__cpu_range range, const void *arg) {
  if (n <= 0) {
    return;
  }
  int is_small = n < 2 || (double)n * (double)cost < (double)LEAST_WORK;
  if (is_small || omp_get_max_threads() == 1 || omp_in_parallel()) {
    range(arg, 0, n);
    return;
  }
  /* parts of cheap items begin on cache lines, so that no two threads write the same one */
  int64_t unit = cost < CACHE_LINE_FLOATS ? CACHE_LINE_FLOATS : 1;
#pragma omp parallel
  {
    int64_t n_units = (n + unit - 1) / unit;
    int64_t n_threads = omp_get_num_threads(), thread = omp_get_thread_num();
    int64_t first = n_units * thread / n_threads * unit;
    int64_t last = n_units * (thread + 1) / n_threads * unit;
    last = last < n ? last : n;
    if (first < last) {
      range(arg, first, last);
    }
  }
}
