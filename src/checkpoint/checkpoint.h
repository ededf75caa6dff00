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
/* The decision without the checks, for callers that have made them. */
int neap__policy_drops(const neap_policy *policy, const char *name, uint64_t index, uint64_t bytes,
                       uint64_t stored_bytes);

/* ---- plan.c: the rules of a plan, the same for validator and simulator ---- */

/* What is there while a plan runs. */
typedef struct neap__walk {
  int n_stages, n_actions;
  const neap_stage *stages;
  const neap_action *actions;
  int next_backward; /* the stage whose backward is due; -1 when all are done */
  uint8_t *held;     /* x_0..x_L: the executor holds it */
  uint8_t *recorded; /* r_0..r_{L-1}: there */
  uint8_t *ran;      /* the stage's forward ran at least once */
} neap__walk;

/* What one action will do. */
typedef struct neap__effect {
  int makes_output;    /* x_{i+1} appears */
  int makes_record;    /* r_i appears */
  int drops_input;     /* x_i goes when the action ends */
  int makes_loss_grad; /* g_L appears after that */
  int stops_early;     /* the recomputation that makes no x_{i+1} */
} neap__effect;

int neap__stages_check(int n_stages, const neap_stage *stages);
/* Checks the arguments and allocates; end with neap__walk_end. */
int neap__walk_begin(neap__walk *walk, int n_stages, const neap_stage *stages, int n_actions,
                     const neap_action *actions);
/* Judges action number a and applies it to the walk; PLAN when it must not run. */
int neap__walk_step(neap__walk *walk, int a, neap__effect *effect);
/* PLAN when a backward is missing or something is still there. */
int neap__walk_finish(const neap__walk *walk);
void neap__walk_end(neap__walk *walk);

#endif
