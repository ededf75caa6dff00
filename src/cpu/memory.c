/* Memory of the cpu backend: huge pages for large blocks, transfers by all threads.
 *
 * First touch of 4 KiB pages is slow enough to spoil any comparison of times, so blocks of 2 MiB
 * and more are mapped at huge-page borders and ask for huge pages. Free memory is what the system
 * calls available, or what the tightest control group around us leaves, if that is less.
 */
#include "cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t huge_page = (size_t)2 << 20, small_page = 4096;

/* Whole huge pages, unless that wastes more than an eighth. */
static size_t mapped_bytes(size_t bytes) {
  size_t rounded = (bytes + huge_page - 1) / huge_page * huge_page;
  return rounded - bytes <= bytes / 8 ? rounded
                                      : (bytes + small_page - 1) / small_page * small_page;
}

int neap__cpu_alloc(void *context, size_t bytes, void **out) {
  (void)context;
  if (bytes > SIZE_MAX / 4) {
    return neap__error(NEAP_ERR_MEMORY, "cpu: cannot allocate %zu bytes", bytes);
  }
  if (bytes < huge_page) {
    *out = aligned_alloc(64, (bytes + 64) / 64 * 64);
    return *out ? NEAP_OK : neap__error(NEAP_ERR_MEMORY, "cpu: cannot allocate %zu bytes", bytes);
  }
  /* map one huge page more than needed and give back what lies outside the aligned part */
  size_t size = mapped_bytes(bytes);
  char *raw =
      mmap(NULL, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return neap__error(NEAP_ERR_MEMORY, "cpu: cannot map %zu bytes", bytes);
  }
  size_t before = (huge_page - (uintptr_t)raw % huge_page) % huge_page;
  if (before > 0) {
    munmap(raw, before);
  }
  munmap(raw + before + size, huge_page - before);
  madvise(raw + before, size, MADV_HUGEPAGE); /* only a wish: without it all works, slower */
  *out = raw + before;
  return NEAP_OK;
}

void neap__cpu_free(void *context, void *data, size_t bytes) {
  (void)context;
  if (!data) {
    return;
  }
#ifdef NEAP_GUARD
  neap__cpu_unguard(data, bytes);
#endif
  if (bytes < huge_page) {
    free(data);
  } else {
    munmap(data, mapped_bytes(bytes));
  }
}

/* The number after `key` in a file (after nothing when key is ""); -1 when there is none. */
static double read_number(const char *path, const char *key) {
  FILE *file = fopen(path, "r");
  if (!file) {
    return -1.0;
  }
  char line[256];
  size_t length = strlen(key);
  double number = -1.0;
  while (number < 0.0 && fgets(line, sizeof line, file)) {
    char *end = line + length;
    if (strncmp(line, key, length) == 0) {
      double value = strtod(line + length, &end);
      number = end == line + length ? -1.0 : value;
    }
  }
  fclose(file);
  return number;
}

/* Narrows *free_bytes and *total by one control group's directory, if it has a limit. */
static void apply_group(const char *directory, const char *limit_file, const char *usage_file,
                        const char *cache_key, double *free_bytes, double *total) {
  char path[4096 + 64];
  snprintf(path, sizeof path, "%s/%s", directory, limit_file);
  double limit = read_number(path, "");
  if (limit < 0.0 || limit >= *total) {
    return;
  }
  snprintf(path, sizeof path, "%s/%s", directory, usage_file);
  double usage = read_number(path, "");
  snprintf(path, sizeof path, "%s/memory.stat", directory);
  double cache = read_number(path, cache_key); /* file pages that the kernel drops on demand */
  double left = limit - (usage > 0.0 ? usage : 0.0) + (cache > 0.0 ? cache : 0.0);
  *total = limit;
  left = left < 0.0 ? 0.0 : left;
  *free_bytes = left < *free_bytes ? left : *free_bytes;
}

/* Our group and all groups around it: any of them may have the limit. */
static void apply_groups(double *free_bytes, double *total) {
  char line[2048], directory[4096];
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    int is_v2 = strncmp(line, "0::", 3) == 0;
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || (!is_v2 && strncmp(controllers, ":memory:", 8) != 0)) {
      continue;
    }
    for (group++;; *strrchr(group, '/') = 0) {
      snprintf(directory, sizeof directory, "/sys/fs/cgroup%s%s", is_v2 ? "" : "/memory", group);
      if (is_v2) {
        apply_group(directory, "memory.max", "memory.current", "inactive_file ", free_bytes, total);
      } else {
        apply_group(directory, "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file ", free_bytes, total);
      }
      if (!strrchr(group, '/')) {
        break;
      }
    }
  }
  if (file) {
    fclose(file);
  }
}

int neap__cpu_memory_info(void *context, size_t *free_bytes, size_t *total) {
  (void)context;
  double available = read_number("/proc/meminfo", "MemAvailable:") * 1024.0;
  double size = read_number("/proc/meminfo", "MemTotal:") * 1024.0;
  if (available < 0.0 || size < 0.0) {
    return neap__error(NEAP_ERR_DEVICE, "cpu: /proc/meminfo does not tell the memory");
  }
  apply_groups(&available, &size);
  *free_bytes = (size_t)available;
  *total = (size_t)size;
  return NEAP_OK;
}

typedef struct {
  char *to;
  const char *from; /* NULL: zeros */
  size_t bytes;
} copy_args;

enum { COPY_PIECE = 65536 };

static void copy_pieces(const void *arg, int64_t first, int64_t last) {
  const copy_args *args = arg;
  size_t begin = (size_t)first * COPY_PIECE, end = (size_t)last * COPY_PIECE;
  end = end < args->bytes ? end : args->bytes;
  if (args->from) {
    memcpy(args->to + begin, args->from + begin, end - begin);
  } else {
    memset(args->to + begin, 0, end - begin);
  }
}

int neap__cpu_copy(void *context, void *to, const void *from, size_t bytes) {
  (void)context;
  copy_args args = {to, from, bytes};
  if (bytes > 0 && to != from) {
    int64_t pieces = (int64_t)((bytes + COPY_PIECE - 1) / COPY_PIECE);
    neap__cpu_parallel(pieces, COPY_PIECE / 16, copy_pieces, &args);
  }
  return NEAP_OK;
}

int neap__cpu_zero(void *context, void *to, size_t bytes) {
  return neap__cpu_copy(context, to, NULL, bytes);
}
