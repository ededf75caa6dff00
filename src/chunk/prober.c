/* The auto-chunk ladder as a stepper: it says which n to try next, is told what happened, and knows
 * when to stop. Whoever drives it runs the forwards, so no memory query and no closure is in here.
 */
#include <stdio.h>

#include "chunk/chunk.h"

enum { NEW, CLIMBING, DONE };

struct neap_prober {
  int state;
  uint64_t rung; /* to be run while climbing */
  neap_chunk_outcome outcome;
};

int neap_prober_new(uint64_t cap, uint64_t floor, double target, neap_prober **out) {
  neap_chunk_outcome outcome = {.within_budget = -1, .cap = neap__chunk_cap(cap)};
  outcome.floor = neap__chunk_floor(floor, outcome.cap);
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_prober_new needs a place for its result");
  }
  int code = neap_chunk_target(target, &outcome.target);
  if (code != NEAP_OK) {
    return code;
  }
  neap_prober *prober = neap__host_alloc(sizeof *prober);
  if (prober == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a chunk prober");
  }
  *prober = (neap_prober){.state = NEW, .rung = outcome.floor, .outcome = outcome};
  *out = prober;
  return NEAP_OK;
}

void neap_prober_free(neap_prober *prober) {
  neap__host_free(prober);
}

static int check_state(const neap_prober *prober, int state, const char *what) {
  if (prober == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s: prober is NULL", what);
  }
  if (prober->state != state) {
    return neap__error(NEAP_ERR_STATE, "%s: the prober %s", what,
                       prober->state == NEW        ? "was not started"
                       : prober->state == CLIMBING ? "is still climbing"
                                                   : "is done");
  }
  return NEAP_OK;
}

int neap_prober_start(neap_prober *prober, uint64_t free_bytes, uint64_t total_bytes) {
  int code = check_state(prober, NEW, "prober_start");
  if (code != NEAP_OK) {
    return code;
  }
  neap_chunk_outcome *outcome = &prober->outcome;
  outcome->free_bytes = free_bytes;
  outcome->total_bytes = total_bytes;
  prober->state = CLIMBING;
  return neap_chunk_budget(free_bytes, (double)outcome->target, &outcome->budget_bytes);
}

int neap_prober_start_unseen(neap_prober *prober) {
  int code = check_state(prober, NEW, "prober_start_unseen");
  if (code == NEAP_OK) {
    prober->state = DONE;
    prober->outcome.kind = NEAP_CHUNK_UNSUPPORTED;
    snprintf(prober->outcome.stop, sizeof prober->outcome.stop, "unsupported");
  }
  return code;
}

int neap_prober_next(const neap_prober *prober, uint64_t *n) {
  if (prober == NULL || n == NULL) {
    return neap__error(NEAP_ERR_INVALID, "prober_next: %s is NULL",
                       prober == NULL ? "prober" : "n");
  }
  if (prober->state == NEW) {
    return check_state(prober, CLIMBING, "prober_next");
  }
  if (prober->state == DONE) {
    return 0;
  }
  *n = prober->rung;
  return 1;
}

static void choose(neap_prober *prober, uint64_t used, int within_budget) {
  neap_chunk_outcome *outcome = &prober->outcome;
  outcome->kind = NEAP_CHUNK_CHOSEN;
  outcome->n = prober->rung;
  outcome->used_bytes = used;
  outcome->item_bytes = used / prober->rung;
  outcome->within_budget = within_budget;
}

static int over_budget(neap_prober *prober, uint64_t used) {
  neap_chunk_outcome *outcome = &prober->outcome;
  prober->state = DONE;
  if (prober->rung == outcome->floor) {
    choose(prober, used, 0);
    snprintf(outcome->stop, sizeof outcome->stop, "floor over budget");
  } else {
    snprintf(outcome->stop, sizeof outcome->stop, "rung %llu used %llu bytes > budget %llu",
             (unsigned long long)prober->rung, (unsigned long long)used,
             (unsigned long long)outcome->budget_bytes);
  }
  return NEAP_OK;
}

int neap_prober_ran(neap_prober *prober, uint64_t free_bytes) {
  int code = check_state(prober, CLIMBING, "prober_ran");
  if (code != NEAP_OK) {
    return code;
  }
  neap_chunk_outcome *outcome = &prober->outcome;
  uint64_t used = outcome->free_bytes > free_bytes ? outcome->free_bytes - free_bytes : 0, forecast;
  if (used > outcome->budget_bytes) {
    return over_budget(prober, used);
  }
  choose(prober, used, used > 0 ? 1 : -1);
  if (prober->rung == outcome->cap) {
    prober->state = DONE;
    snprintf(outcome->stop, sizeof outcome->stop, "reached cap");
    return NEAP_OK;
  }
  uint64_t next = neap__chunk_next(prober->rung, outcome->cap);
  uint64_t item = outcome->item_bytes > 0 ? outcome->item_bytes : 1;
  if (prober->rung > outcome->floor &&
      !neap__chunk_fits(next, item, outcome->budget_bytes, &forecast)) {
    prober->state = DONE;
    snprintf(outcome->stop, sizeof outcome->stop,
             "next rung %llu predicted %llu bytes > budget %llu", (unsigned long long)next,
             (unsigned long long)forecast, (unsigned long long)outcome->budget_bytes);
  }
  prober->rung = next;
  return NEAP_OK;
}

int neap_prober_ran_unseen(neap_prober *prober) {
  int code = check_state(prober, CLIMBING, "prober_ran_unseen");
  if (code != NEAP_OK) {
    return code;
  }
  if (prober->rung == prober->outcome.floor) {
    choose(prober, 0, -1);
  }
  prober->state = DONE;
  snprintf(prober->outcome.stop, sizeof prober->outcome.stop,
           "memory query failed after forward_at(%llu)", (unsigned long long)prober->rung);
  return NEAP_OK;
}

int neap_prober_failed(neap_prober *prober) {
  int code = check_state(prober, CLIMBING, "prober_failed");
  if (code != NEAP_OK) {
    return code;
  }
  if (prober->rung == prober->outcome.floor) {
    prober->outcome.kind = NEAP_CHUNK_NOTHING_FITS;
  }
  prober->state = DONE;
  snprintf(prober->outcome.stop, sizeof prober->outcome.stop, "forward_at(%llu) failed",
           (unsigned long long)prober->rung);
  return NEAP_OK;
}

int neap_prober_outcome(const neap_prober *prober, neap_chunk_outcome *out) {
  int code = out == NULL ? neap__error(NEAP_ERR_INVALID, "prober_outcome: out is NULL")
                         : check_state(prober, DONE, "prober_outcome");
  if (code == NEAP_OK) {
    *out = prober->outcome;
  }
  return code;
}
