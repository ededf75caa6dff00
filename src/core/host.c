/* Host memory of the library's own tables, threads, clock. The failure knobs sit here because
 * device memory (memory.c) counts through the same gate. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "core/host.h"

static int64_t n_attempts, fail_first, fail_count;

int neap__host_fails(void) {
  n_attempts++;
  if (fail_first == 0 || n_attempts < fail_first) {
    return 0;
  }
  return fail_count < 0 || n_attempts < fail_first + fail_count;
}

int neap_memory_fail(double n, double count) {
  if (!(n >= 0 && n < 1e15) || !(count < 1e15)) {
    return neap__error(NEAP_ERR_INVALID, "memory_fail: n must be 0 or more, found %g", n);
  }
  n_attempts = 0;
  fail_first = (int64_t)n;
  fail_count = count < 0 ? -1 : (int64_t)count;
  return NEAP_OK;
}

double neap_memory_n_attempts(void) {
  return (double)n_attempts;
}

void *neap__host_alloc(size_t bytes) {
  return neap__host_fails() ? NULL : malloc(bytes > 0 ? bytes : 1);
}

void neap__host_free(void *memory) {
  free(memory);
}

int neap__host_grow(void **array, int *capacity, int n, size_t bytes) {
  if (n <= *capacity) {
    return NEAP_OK;
  }
  size_t wanted = *capacity < 8 ? 16 : (size_t)*capacity * 2;
  wanted = wanted < (size_t)n ? (size_t)n : wanted;
  void *grown = wanted > INT32_MAX || neap__host_fails() ? NULL : realloc(*array, wanted * bytes);
  if (grown == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a table of %zu entries",
                       wanted);
  }
  *array = grown;
  *capacity = (int)wanted;
  return NEAP_OK;
}

int neap_threads_set(int n_threads) {
  if (n_threads < 1 || n_threads > 1024) {
    return neap__error(NEAP_ERR_INVALID, "threads: expected 1..1024, found %d", n_threads);
  }
  omp_set_dynamic(0);
  omp_set_num_threads(n_threads);
  return NEAP_OK;
}

int neap_threads_get(void) {
  return omp_get_max_threads();
}

/* distinct (package, core) pairs among the processors this process may use */
int neap_cores_physical(void) {
  enum { MOST = 1024 };
  static int seen[MOST];
  int n = 0;
  long n_online = sysconf(_SC_NPROCESSORS_ONLN);
  for (int cpu = 0; cpu < n_online && cpu < MOST; cpu++) {
    int ids[2] = {0, cpu};
    const char *names[2] = {"physical_package_id", "core_id"};
    for (int i = 0; i < 2; i++) {
      char path[128];
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]);
      FILE *file = fopen(path, "r");
      if (file != NULL) {
        if (fscanf(file, "%d", &ids[i]) != 1) {
          ids[i] = i == 0 ? 0 : cpu;
        }
        fclose(file);
      }
    }
    int key = ids[0] * 65536 + ids[1], known = 0;
    for (int i = 0; i < n; i++) {
      known |= seen[i] == key;
    }
    if (!known) {
      seen[n++] = key;
    }
  }
  return n > 0 ? n : 1;
}

double neap_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
