/* What the files of src/checkpoint share, and nothing for anybody else. They know no tensors:
 * numbers in, decisions and plans out.
 */
#ifndef NEAP_CHECKPOINT_H
#define NEAP_CHECKPOINT_H

#include "backend.h"
#include "core/host.h"

/* ---- policy.c ---- */

/* INVALID when a field has no meaning: kind out of range, a NULL where a name should be. */
int neap__policy_check(const neap_policy *policy);
/* A deep copy, checked; ends with neap__policy_free. */
int neap__policy_copy(neap_policy *to, const neap_policy *from);
void neap__policy_free(neap_policy *policy);
/* The decision without the checks, for callers that have made them. */
int neap__policy_drops(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                       uint64_t stored_bytes);

/* ---- snapshot.c and names.c: the manager's activations by name ---- */

typedef struct neap__entry {
  neap_snapshot snapshot; /* name, dims and data lie behind the entry, in its block */
  uint64_t hash;          /* of the name */
  int position;           /* in the order of the records */
} neap__entry;

enum { NEAP__SHAPE_TEXT = 400 };

/* OVERFLOW, without a text, when 4 * product(dims) does not fit in 64 bits. */
int neap__count_elements(int n_dims, const uint64_t *dims, uint64_t *n_elements, uint64_t *bytes);
/* "[2, 3]" in text, which has NEAP__SHAPE_TEXT bytes; a long shape ends in "..." */
const char *neap__shape_text(int n_dims, const uint64_t *dims, char *text);
int neap__shape_mismatch(int n_dims, const uint64_t *dims, uint64_t n_found);
/* Copies the wish into one block: entry, dims, data where it is stored, name. NULL: no memory. */
neap__entry *neap__entry_new(const neap_snapshot *wish, int drop);

typedef struct neap__names {
  neap__entry **places; /* NULL: free */
  size_t n, capacity;   /* capacity: 0 or a power of two */
} neap__names;

uint64_t neap__name_hash(const char *name);
neap__entry *neap__names_find(const neap__names *names, const char *name); /* or NULL */
/* Room for one more; on MEMORY the table is as it was. */
int neap__names_reserve(neap__names *names);
void neap__names_add(neap__names *names, neap__entry *entry); /* after reserve; a new name */
void neap__names_remove(neap__names *names, const neap__entry *entry);

/* ---- stage.c ---- */

enum { NEAP__MAX_STAGES = 1 << 26 }; /* five actions a stage fit an int */

int neap__stages_check(int n_stages, const neap_stage *stages);

/* ---- layers_fewest.c and layers_budget.c: decisions that need the sum of others ---- */

typedef struct neap__by_size {
  uint64_t bytes, position;
} neap__by_size;

/* Most bytes first, then the smaller position; ends with neap__host_free. NULL: no memory, said. */
neap__by_size *neap__layers_by_size(uint64_t n, const neap_layer *layers);
/* The rules FEWEST and BUDGET over layers whose bytes sum to 64 bits; drops holds zeros. 1: the
 * search was cut short. */
int neap__layers_fewest(uint64_t n, const neap_layer *layers, uint64_t budget, uint8_t *drops);
int neap__layers_budget(uint64_t n, const neap_layer *layers, uint64_t budget, uint8_t *drops);
/* Whether a drops the smaller positions: the first difference decides. */
int neap__drops_before(uint64_t n, const uint8_t *a, const uint8_t *b);

enum { NEAP__SEARCH_STEPS = 1 << 20 };

/* ---- plan.c: the rules of a plan, the same for validator and simulator ---- */

/* What is there while a plan runs. */
typedef struct neap__walk {
  int n_stages, n_actions;
  const neap_stage *stages;
  const neap_action *actions;
  int next_backward; /* the stage whose backward is due; -1 when all are done */
  uint8_t *held;     /* x_0..x_L: the executor holds it */
  uint8_t *recorded; /* r_0..r_{L-1}: 0, or 1 + the mode it was made in */
  uint8_t *ran;      /* the stage's forward ran at least once */
} neap__walk;

/* What one action will do. */
typedef struct neap__effect {
  const neap_mode *mode; /* of a forward; of a backward that of its record; NULL: store all */
  int makes_output;      /* x_{i+1} appears */
  int makes_record;      /* r_i appears */
  int drops_input;       /* x_i goes when the action ends */
  int makes_loss_grad;   /* g_L appears after that */
  int stops_early;       /* the recomputation that makes no x_{i+1} */
} neap__effect;

/* Checks the arguments and allocates; end with neap__walk_end. */
int neap__walk_begin(neap__walk *walk, int n_stages, const neap_stage *stages, int n_actions,
                     const neap_action *actions);
/* Judges action number a and applies it to the walk; PLAN when it must not run. */
int neap__walk_step(neap__walk *walk, int a, neap__effect *effect);
/* PLAN when a backward is missing or something is still there. */
int neap__walk_finish(const neap__walk *walk);
void neap__walk_end(neap__walk *walk);

#endif
