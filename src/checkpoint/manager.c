/* The checkpoint manager: activations by name, stored or dropped as the policy says, their
 * statistics and the log of recomputations.
 *
 * CHECKPOINTED means dropped: its bytes are counted, its data is not here. STORED means held: host
 * floats are copied in; bytes held elsewhere come back as the caller's payload. Statistics are the
 * sums over what is recorded now, so stored bytes and current bytes are the same number and both
 * fall at release; recomputed bytes and the log grow until clear. Two gets of a dropped activation
 * are two recomputations: a recomputed value is never kept. The cost of a stored activation is
 * dropped, as nothing will be paid for it. Another policy decides over later records only.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

__extension__ typedef unsigned __int128 wide;

struct neap_manager {
  neap_policy policy;
  neap__names names;
  neap__entry **entries; /* in the order of the records; NULL where one was released */
  char **log;
  int n_holes; /* the NULLs among entries; the last one is none */
  int n_entries, entries_capacity, n_log, log_capacity;
  uint64_t stored_bytes, checkpointed_bytes, recomputed_bytes;
  uint64_t n_stored, n_checkpointed;
};

/* ---- birth and end ---- */

int neap_manager_new(const neap_policy *policy, neap_manager **out) {
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_manager_new needs a place for its result");
  }
  neap_policy copy;
  int code = neap__policy_copy(&copy, policy);
  if (code != NEAP_OK) {
    return code;
  }
  neap_manager *manager = neap__host_alloc(sizeof *manager);
  if (manager == NULL) {
    neap__policy_free(&copy);
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a checkpoint manager");
  }
  *manager = (neap_manager){.policy = copy};
  *out = manager;
  return NEAP_OK;
}

/* tables keep their size: the next step records as much again */
static void forget_all(neap_manager *manager) {
  for (int i = 0; i < manager->n_entries; i++) {
    neap__host_free(manager->entries[i]);
  }
  for (int i = 0; i < manager->n_log; i++) {
    neap__host_free(manager->log[i]);
  }
  if (manager->names.n > 0) {
    memset(manager->names.places, 0, manager->names.capacity * sizeof *manager->names.places);
  }
  manager->names.n = 0;
  manager->n_entries = manager->n_holes = manager->n_log = 0;
  manager->stored_bytes = manager->checkpointed_bytes = manager->recomputed_bytes = 0;
  manager->n_stored = manager->n_checkpointed = 0;
}

void neap_manager_free(neap_manager *manager) {
  if (manager == NULL) {
    return;
  }
  forget_all(manager);
  neap__policy_free(&manager->policy);
  neap__host_free(manager->names.places);
  neap__host_free(manager->entries);
  neap__host_free(manager->log);
  neap__host_free(manager);
}

int neap_manager_clear(neap_manager *manager) {
  if (manager == NULL) {
    return neap__error(NEAP_ERR_INVALID, "manager is NULL");
  }
  forget_all(manager);
  return NEAP_OK;
}

int neap_manager_set_policy(neap_manager *manager, const neap_policy *policy) {
  if (manager == NULL) {
    return neap__error(NEAP_ERR_INVALID, "manager is NULL");
  }
  neap_policy copy;
  int code = neap__policy_copy(&copy, policy);
  if (code == NEAP_OK) {
    neap__policy_free(&manager->policy);
    manager->policy = copy;
  }
  return code;
}

/* ---- record ---- */

static int refuse_duplicate(const neap_manager *manager, const char *name) {
  const neap__entry *there = neap__names_find(&manager->names, name);
  if (there == NULL) {
    return NEAP_OK;
  }
  return neap__error(NEAP_ERR_DUPLICATE,
                     "checkpoint layer '%s' is recorded already (index %llu, %llu bytes)", name,
                     (unsigned long long)there->snapshot.index,
                     (unsigned long long)there->snapshot.logical_bytes);
}

static void close_holes(neap_manager *manager) {
  int n = 0;
  for (int i = 0; i < manager->n_entries; i++) {
    if (manager->entries[i] != NULL) {
      manager->entries[n] = manager->entries[i];
      manager->entries[n]->position = n;
      n++;
    }
  }
  manager->n_entries = n;
  manager->n_holes = 0;
}

static int reserve_entry(neap_manager *manager) {
  if (manager->n_holes > manager->n_entries / 2) {
    close_holes(manager);
  }
  int code = neap__names_reserve(&manager->names);
  if (code != NEAP_OK) {
    return code;
  }
  void *entries = manager->entries;
  code = neap__host_grow(&entries, &manager->entries_capacity, manager->n_entries + 1,
                         sizeof *manager->entries);
  manager->entries = entries;
  return code;
}

/* drop: 1, 0, or -1 to ask the policy. Returns what was done. */
static int record(neap_manager *manager, const neap_snapshot *wish, int drop) {
  if (drop < 0) {
    drop = neap__policy_drops(&manager->policy, wish->name, wish->index, wish->logical_bytes,
                              manager->stored_bytes);
  }
  uint64_t *sum = drop ? &manager->checkpointed_bytes : &manager->stored_bytes, raised;
  if (__builtin_add_overflow(*sum, wish->logical_bytes, &raised)) {
    return neap__error(
        NEAP_ERR_OVERFLOW,
        "checkpoint layer '%s': %llu bytes beside the %llu that are %s do not fit in "
        "64 bits",
        wish->name, (unsigned long long)wish->logical_bytes, (unsigned long long)*sum,
        drop ? "checkpointed" : "stored");
  }
  int code = reserve_entry(manager);
  if (code != NEAP_OK) {
    return code;
  }
  neap__entry *entry = neap__entry_new(wish, drop);
  if (entry == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for checkpoint layer '%s' (%llu bytes)",
                       wish->name, (unsigned long long)wish->logical_bytes);
  }
  entry->position = manager->n_entries;
  manager->entries[manager->n_entries++] = entry;
  neap__names_add(&manager->names, entry);
  *sum = raised;
  manager->n_checkpointed += (uint64_t)drop;
  manager->n_stored += (uint64_t)!drop;
  return drop;
}

int neap_manager_record(neap_manager *manager, const char *name, uint64_t index, int n_dims,
                        const uint64_t *dims, const float *data, uint64_t n_data, double cost) {
  if (manager == NULL || name == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", manager == NULL ? "manager" : "name");
  }
  int only_size = data == NULL && n_data == UINT64_MAX;
  if (n_dims < 0 || (n_dims > 0 && dims == NULL) || (data == NULL && n_data > 0 && !only_size)) {
    return neap__error(NEAP_ERR_INVALID,
                       "checkpoint layer '%s': %d dims%s and %llu elements%s make no record", name,
                       n_dims, dims == NULL ? " (NULL)" : "", (unsigned long long)n_data,
                       data == NULL ? " (NULL)" : "");
  }
  char text[NEAP__SHAPE_TEXT];
  neap_snapshot wish = {.name = name,
                        .index = index,
                        .n_dims = n_dims,
                        .dims = dims,
                        .data = data,
                        .n_data = n_data,
                        .cost = cost};
  if (neap__count_elements(n_dims, dims, &wish.n_elements, &wish.logical_bytes) != NEAP_OK) {
    return neap__error(NEAP_ERR_OVERFLOW,
                       "checkpoint layer '%s': the bytes of shape %s do not fit in 64 bits", name,
                       neap__shape_text(n_dims, dims, text));
  }
  int code = refuse_duplicate(manager, name);
  if (code != NEAP_OK) {
    return code;
  }
  if (!only_size && n_data != wish.n_elements) {
    return neap__shape_mismatch(n_dims, dims, n_data);
  }
  code = record(manager, &wish, -1);
  return code < 0 ? code : NEAP_OK;
}

int neap_manager_record_payload(neap_manager *manager, const char *name, uint64_t index,
                                uint64_t bytes, double payload, double cost, int drop) {
  if (manager == NULL || name == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", manager == NULL ? "manager" : "name");
  }
  if (drop < -1 || drop > 1 || (drop != 1 && !(payload < 0 || payload > 0))) {
    return neap__error(NEAP_ERR_INVALID,
                       "checkpoint layer '%s': drop is %d (allowed: 1, 0, -1), payload %g (not 0)",
                       name, drop, payload);
  }
  int code = refuse_duplicate(manager, name);
  if (code != NEAP_OK) {
    return code;
  }
  neap_snapshot wish = {.name = name,
                        .index = index,
                        .n_elements = UINT64_MAX,
                        .logical_bytes = bytes,
                        .payload = payload,
                        .cost = cost};
  return record(manager, &wish, drop);
}

/* ---- get, deliver, release ---- */

static int find(const neap_manager *manager, const char *name, neap__entry **entry) {
  if (manager == NULL || name == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", manager == NULL ? "manager" : "name");
  }
  *entry = neap__names_find(&manager->names, name);
  if (*entry == NULL) {
    return neap__error(NEAP_ERR_NOT_FOUND, "checkpoint layer not found: '%s'", name);
  }
  return NEAP_OK;
}

int neap_manager_get(neap_manager *manager, const char *name, neap_snapshot *out) {
  neap__entry *entry;
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_manager_get needs a place for its result");
  }
  int code = find(manager, name, &entry);
  if (code != NEAP_OK) {
    return code;
  }
  *out = entry->snapshot;
  return entry->snapshot.is_checkpointed ? NEAP_NEED_RECOMPUTE : NEAP_OK;
}

int neap_manager_deliver(neap_manager *manager, const char *name, uint64_t n_elements) {
  neap__entry *entry;
  int code = find(manager, name, &entry);
  if (code != NEAP_OK) {
    return code;
  }
  const neap_snapshot *snapshot = &entry->snapshot;
  if (!snapshot->is_checkpointed) {
    return neap__error(NEAP_ERR_STATE, "checkpoint layer '%s' is stored: nothing to deliver", name);
  }
  if (n_elements != UINT64_MAX && snapshot->n_elements != UINT64_MAX &&
      n_elements != snapshot->n_elements) {
    return neap__shape_mismatch(snapshot->n_dims, snapshot->dims, n_elements);
  }
  uint64_t recomputed;
  if (__builtin_add_overflow(manager->recomputed_bytes, snapshot->logical_bytes, &recomputed)) {
    return neap__error(NEAP_ERR_OVERFLOW,
                       "checkpoint layer '%s': %llu bytes beside %llu recomputed do not fit in 64 "
                       "bits",
                       name, (unsigned long long)snapshot->logical_bytes,
                       (unsigned long long)manager->recomputed_bytes);
  }
  void *log = manager->log;
  code = neap__host_grow(&log, &manager->log_capacity, manager->n_log + 1, sizeof *manager->log);
  manager->log = log;
  if (code != NEAP_OK) {
    return code;
  }
  /* a copy: the log outlives a release */
  size_t name_bytes = strlen(name) + 1;
  char *copy = neap__host_alloc(name_bytes);
  if (copy == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for the recompute log");
  }
  manager->log[manager->n_log++] = memcpy(copy, name, name_bytes);
  manager->recomputed_bytes = recomputed;
  return NEAP_OK;
}

int neap_manager_release(neap_manager *manager, const char *name) {
  neap__entry *entry;
  int code = find(manager, name, &entry);
  if (code != NEAP_OK) {
    return code;
  }
  neap__names_remove(&manager->names, entry);
  /* a hole, closed when somebody counts: whatever the order, n releases take n steps */
  manager->entries[entry->position] = NULL;
  manager->n_holes++;
  while (manager->n_entries > 0 && manager->entries[manager->n_entries - 1] == NULL) {
    manager->n_entries--;
    manager->n_holes--;
  }
  if (entry->snapshot.is_checkpointed) {
    manager->checkpointed_bytes -= entry->snapshot.logical_bytes;
    manager->n_checkpointed--;
  } else {
    manager->stored_bytes -= entry->snapshot.logical_bytes;
    manager->n_stored--;
  }
  neap__host_free(entry);
  return NEAP_OK;
}

/* ---- what is known ---- */

int neap_manager_get_stats(const neap_manager *manager, neap_manager_stats *out) {
  if (manager == NULL || out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", manager == NULL ? "manager" : "out");
  }
  wide total = (wide)manager->stored_bytes + manager->checkpointed_bytes;
  *out = (neap_manager_stats){
      .stored_bytes = manager->stored_bytes,
      .checkpointed_bytes = manager->checkpointed_bytes,
      .recomputed_bytes = manager->recomputed_bytes,
      .current_bytes = manager->stored_bytes,
      .n_stored = manager->n_stored,
      .n_checkpointed = manager->n_checkpointed,
      .n_snapshots = (uint64_t)(manager->n_entries - manager->n_holes),
      .n_log = (uint64_t)manager->n_log,
      /* both sides are rounded to f32 first, as in the source system */
      .savings_ratio = total == 0 ? 0.0f : (float)manager->checkpointed_bytes / (float)total,
  };
  return NEAP_OK;
}

int neap_manager_snapshot(neap_manager *manager, uint64_t i, neap_snapshot *out) {
  if (manager == NULL || out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", manager == NULL ? "manager" : "out");
  }
  if (manager->n_holes > 0) {
    close_holes(manager);
  }
  if (i >= (uint64_t)manager->n_entries) {
    return neap__error(NEAP_ERR_NOT_FOUND, "snapshot %llu: there are %d", (unsigned long long)i,
                       manager->n_entries);
  }
  *out = manager->entries[i]->snapshot;
  return NEAP_OK;
}

const char *neap_manager_log(const neap_manager *manager, uint64_t i) {
  return manager == NULL || i >= (uint64_t)manager->n_log ? NULL : manager->log[i];
}
