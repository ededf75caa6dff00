/* What the files of the solver share: the bytes and costs of a chain in the terms of a schedule's
 * parts, lists of Pareto points, and the merge of two of them.
 *
 * A schedule of the interval [s, t) begins with x_s held and the gradient of x_t live (no gradient
 * in the first pass, where t = L), and ends when the backward of stage s is done and x_s is freed.
 * Its peak counts x_s and that gradient, and nothing that was there beside them.
 */
#ifndef NEAP_SOLVER_H
#define NEAP_SOLVER_H

#include "checkpoint/checkpoint.h"

/* ---- solver_chain.c ---- */

/* One way to keep the residuals of a stage: number 0 stores all, m >= 1 is the stage's mode m.
 * All fields are int64_t: ways and parts are compared as memory. */
typedef struct neap__way {
  int64_t record_bytes;  /* that the record alone holds */
  int64_t record_out;    /* of x_{i+1} and not of x_i: held by the record and the executor */
  int64_t forward_peak;  /* over what is live at entry */
  int64_t backward_peak; /* likewise */
  int64_t forward_cost, backward_cost;
} neap__way;

typedef struct neap__part {
  int64_t in_bytes, out_bytes;                    /* of x_i and x_{i+1}, their distinct storages */
  int64_t new_bytes;                              /* of x_{i+1} without what it shares with x_i */
  int64_t grad_in, grad_out;                      /* of the gradients of x_{i+1} and x_i */
  int64_t nothing_peak, input_peak, forward_cost; /* forward keeping nothing or its input */
  int64_t stops_early, early_peak, early_cost;
  int64_t n_ways;
} neap__part;

typedef struct neap__chain {
  int n_stages;
  neap__part *parts;
  neap__way **ways;       /* of stage i: parts[i].n_ways of them */
  int64_t *cost_before;   /* forward costs of the stages before i, i = 0..L */
  int32_t *storages;      /* of x_i: NEAP_MAX_BOUNDARY numbers; -1: none, or the batch */
  int64_t *storage_bytes; /* likewise */
  uint8_t *inherits;      /* x_i holds a storage of x_{i-1} */
  void *block;
} neap__chain;

/* Checks the stages and all sums: OVERFLOW where a schedule's bytes or costs might not fit in 62
 * bits. with_modes = 0 leaves the named modes out. */
int neap__chain_new(neap__chain *chain, int n_stages, const neap_stage *stages, int with_modes);
void neap__chain_free(neap__chain *chain);
/* Bytes that x_s and x_t have in common, s < t. */
int64_t neap__shared_bytes(const neap__chain *chain, int s, int t);
/* Whether two stages are the same to every schedule. */
int neap__stages_alike(const neap__chain *chain, int i, int j);

/* peaks[k], k = s+1..t: most bytes while x_s is held and x_k is made from it, keeping nothing
 * between; without a gradient. */
void neap__sweep_peaks(const neap__chain *chain, int s, int t, int64_t *peaks);
int64_t neap__sweep_cost(const neap__chain *chain, int s, int t);
/* A stage alone, forward keeping everything and then its backward. grad: bytes of the gradient of
 * x_{i+1}; first: this is the stage's first forward, and the gradient appears after it. Way n_ways
 * is to store all without the early stop that way 0 has, where the stage has one. */
int neap__leaf_ways(const neap__chain *chain, int i, int first);
int64_t neap__leaf_peak(const neap__chain *chain, int i, int way, int64_t grad, int first);
int64_t neap__leaf_cost(const neap__chain *chain, int i, int way, int first);
/* The same two actions with the rest of the interval between them: the peak inside them, what lies
 * below the rest (which counts x_{i+1} itself), and the cost of the two. grad: at the start. */
int64_t neap__kept_peak(const neap__chain *chain, int i, int way, int64_t grad);
int64_t neap__kept_bytes(const neap__chain *chain, int i, int way);
int64_t neap__kept_cost(const neap__chain *chain, int i, int way);

/* ---- solver_merge.c: lists of points, rising in peak and strictly falling in cost ---- */

typedef struct neap__point {
  int64_t peak, cost;
} neap__point;

/* past every peak, so that two of them can be added to it */
#define NEAP__END (INT64_MAX / 2)

typedef struct neap__list {
  const neap__point *points; /* and one more at NEAP__END, except when n = 0 */
  int64_t n;
} neap__list;

/* The least cost over what was added so far, at every peak. */
typedef struct neap__envelope {
  neap__point *points, *next;
  int64_t n, capacity;
} neap__envelope;

/* A schedule with two parts, one after the other: at peak m it costs cost + a(m - below) + b(m),
 * where m is at least floor. b with n = 0 costs nothing. */
typedef struct neap__split {
  neap__list a, b;
  int64_t below, floor, cost;
} neap__split;

/* MEMORY, without a text and with the envelope as it was. */
int neap__envelope_add(neap__envelope *envelope, const neap__split *split);
void neap__envelope_free(neap__envelope *envelope);
/* The point in effect at peak m; the list has one there. */
neap__point neap__list_point(neap__list list, int64_t m);
/* Least cost at peak m, or -1 when it does not fit. */
int64_t neap__split_cost(const neap__split *split, int64_t m);
/* At most cap real points: both ends, and between them those that raise no cost by more than
 * needed. Returns how many are left. */
int64_t neap__points_thin(neap__point *points, int64_t n, int64_t cap);

/* ---- solver.c: the lists of all intervals ---- */

typedef struct neap__solver_options {
  int64_t max_points; /* of a list; 0: no cap */
  int few_splits; /* all of the first few from either end, then half as many with each doubling of
                     the distance; 0: all */
  int n_threads;
} neap__solver_options;

typedef struct neap__solver {
  const neap__chain *chain;
  neap__solver_options options;
  int32_t *class_of; /* [s * L + t - 1]: the list of [s, t), t < L; equal intervals share one */
  int32_t n_classes, class_capacity;
  neap__list *classes;
  neap__list *suffixes; /* of [s, L) in the first pass */
  int64_t *sweep_peaks; /* [s * L + k - 1] */
  int64_t n_points;     /* in all lists */
  int64_t n_thinned;    /* lists that the cap cut */
  void *memory;         /* blocks of points, chained */
} neap__solver;

/* An interval: suffixes are those with first = 1, t = L. */
typedef struct neap__interval {
  int s, t, first;
} neap__interval;

int neap__solver_new(neap__solver *solver, const neap__chain *chain,
                     const neap__solver_options *options);
void neap__solver_free(neap__solver *solver);
/* How many merges a solve of this chain would take; negative: an error. */
int64_t neap__solver_work(neap__solver *solver);
int neap__solver_run(neap__solver *solver);
neap__list neap__solver_list(const neap__solver *solver, neap__interval interval);
/* Alternatives of an interval: 0 .. n_ways(s) - 1 keep everything of stage s, the others keep x_s
 * and split at k = s + 1, ... Returns 0 past the last one; *skip: not looked at in this solve. */
int neap__solver_split(const neap__solver *solver, neap__interval interval, int number,
                       neap__split *split, int *skip);

/* ---- solver_actions.c: a point's schedule ---- */

/* Counts all actions and writes those that fit. */
typedef struct neap__writer {
  neap_action *actions;
  int64_t n, capacity;
} neap__writer;

void neap__emit(neap__writer *writer, int op, int stage, int keep, int mode);
/* forward everything, x_{i+1} freed where it is made, backward, x_i freed */
void neap__emit_leaf(neap__writer *writer, const neap__chain *chain, int i, int way, int first);
void neap__emit_backward(neap__writer *writer, int i);
/* forward s keeping its input, then s + 1 .. t - 1 keeping nothing */
void neap__emit_sweep(neap__writer *writer, int s, int t);
/* The way of a stage alone with this cost within peak m. */
int neap__leaf_way(const neap__chain *chain, int i, int first, int64_t m, int64_t cost);
/* The actions of the whole chain's list at peak m. */
int neap__solver_actions(const neap__solver *solver, int64_t m, neap__writer *writer);

/* ---- solver_apart.c: short chains, boundaries dropped and made again ---- */

typedef struct neap__apart {
  const neap__chain *chain;
  int64_t max_points;
  neap__list *lists[3]; /* whole problems and their first halves, by (s, k, column) */
  int64_t *sweep_peaks; /* [s * (L + 1) + u]: x_u made from x_s ... */
  int64_t *after_peaks; /* ... and the same without the forward of s */
  neap__point *shifted;
  int64_t n_shifted;
  void *memory;
} neap__apart;

int neap__apart_new(neap__apart *apart, const neap__chain *chain, int64_t max_points);
int neap__apart_run(neap__apart *apart);
void neap__apart_free(neap__apart *apart);
neap__list neap__apart_list(const neap__apart *apart);
int neap__apart_actions(neap__apart *apart, int64_t m, neap__writer *writer);

/* Blocks of points that only grow; NULL: no memory. One thread at a time. */
neap__point *neap__points_alloc(void **memory, int64_t n);
void neap__points_free(void *memory);

#endif
