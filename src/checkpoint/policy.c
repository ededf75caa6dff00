/* Policies: which activations are dropped and recomputed. "Checkpointed" means dropped, as in the
 * source systems, so every_n:3 drops each third one, index 0 always among them. The rules look at
 * one activation at a time; only GREEDY also looks at what is stored so far, which the caller sums.
 * A new policy is one entry in the table below.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

typedef int (*rule)(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                    uint64_t stored_bytes);

static int rule_none(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                     uint64_t stored_bytes) {
  (void)policy, (void)name, (void)index, (void)bytes, (void)stored_bytes;
  return 0;
}

static int rule_all(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                    uint64_t stored_bytes) {
  (void)policy, (void)name, (void)index, (void)bytes, (void)stored_bytes;
  return 1;
}

/* n = 0 drops nothing; a config refuses it and names `none` */
static int rule_every_n(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                        uint64_t stored_bytes) {
  (void)name, (void)bytes, (void)stored_bytes;
  return policy->n > 0 && index % policy->n == 0;
}

/* bytes, case-sensitive: "layer1" takes "layer10" too, "" takes every name */
static int rule_by_name(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                        uint64_t stored_bytes) {
  (void)index, (void)bytes, (void)stored_bytes;
  for (int i = 0; i < policy->n_prefixes; i++) {
    if (strncmp(name, policy->prefixes[i], strlen(policy->prefixes[i])) == 0) {
      return 1;
    }
  }
  return 0;
}

/* first fit; written without the sum, which could wrap */
static int rule_greedy(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                       uint64_t stored_bytes) {
  (void)name, (void)index;
  if (bytes == 0) {
    return 0;
  }
  return stored_bytes > policy->budget_bytes || bytes > policy->budget_bytes - stored_bytes;
}

static const rule rules[] = {
    [NEAP_POLICY_NONE] = rule_none,       [NEAP_POLICY_ALL] = rule_all,
    [NEAP_POLICY_EVERY_N] = rule_every_n, [NEAP_POLICY_BY_NAME] = rule_by_name,
    [NEAP_POLICY_GREEDY] = rule_greedy,
};

enum { N_RULES = sizeof rules / sizeof *rules };

int neap__policy_check(const neap_policy *policy) {
  if (policy == NULL) {
    return neap__error(NEAP_ERR_INVALID, "policy is NULL");
  }
  if (policy->kind < 0 || policy->kind >= N_RULES) {
    return neap__error(NEAP_ERR_INVALID, "policy kind %d is not one of 0..%d", (int)policy->kind,
                       N_RULES - 1);
  }
  if (policy->kind != NEAP_POLICY_BY_NAME) {
    return NEAP_OK;
  }
  if (policy->n_prefixes < 0 || (policy->n_prefixes > 0 && policy->prefixes == NULL)) {
    return neap__error(NEAP_ERR_INVALID, "by_name policy has %d prefixes and %s list of them",
                       (int)policy->n_prefixes, policy->prefixes == NULL ? "no" : "a");
  }
  for (int i = 0; i < policy->n_prefixes; i++) {
    if (policy->prefixes[i] == NULL) {
      return neap__error(NEAP_ERR_INVALID, "prefix %d of the by_name policy is NULL", i);
    }
  }
  return NEAP_OK;
}

/* prefixes move into one block: pointers, then texts */
int neap__policy_copy(neap_policy *to, const neap_policy *from) {
  int code = neap__policy_check(from);
  if (code != NEAP_OK) {
    return code;
  }
  *to = *from;
  to->prefixes = NULL;
  if (from->kind != NEAP_POLICY_BY_NAME || from->n_prefixes == 0) {
    to->n_prefixes = 0;
    return NEAP_OK;
  }
  size_t n = (size_t)from->n_prefixes, bytes = n * sizeof(char *);
  for (size_t i = 0; i < n; i++) {
    bytes += strlen(from->prefixes[i]) + 1;
  }
  const char **block = neap__host_alloc(bytes);
  if (block == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %zu prefixes", n);
  }
  char *text = (char *)(block + n);
  for (size_t i = 0; i < n; i++) {
    size_t length = strlen(from->prefixes[i]) + 1;
    block[i] = memcpy(text, from->prefixes[i], length);
    text += length;
  }
  to->prefixes = block;
  return NEAP_OK;
}

void neap__policy_free(neap_policy *policy) {
  neap__host_free((void *)(uintptr_t)policy->prefixes);
}

int neap__policy_drops(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                       uint64_t stored_bytes) {
  return rules[policy->kind](policy, name, index, bytes, stored_bytes);
}

int neap_policy_drops(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                      uint64_t stored_bytes) {
  int code = neap__policy_check(policy);
  if (code != NEAP_OK) {
    return code;
  }
  if (name == NULL) {
    return neap__error(NEAP_ERR_INVALID, "name of activation %llu is NULL",
                       (unsigned long long)index);
  }
  return neap__policy_drops(policy, name, index, bytes, stored_bytes);
}
