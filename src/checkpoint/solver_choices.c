/* The choices of a problem of solver_apart.c, and each one's bytes and costs. */
#include "checkpoint/solver_apart.h"

int neap__problem_end(const neap__apart *x, neap__problem p) {
  return p.column < x->chain->n_stages ? p.column : x->chain->n_stages;
}

int neap__problem_is_first(const neap__apart *x, neap__problem p) {
  return p.column > x->chain->n_stages;
}

neap__list *neap__problem_list(const neap__apart *x, neap__problem p) {
  int kind = p.kind == NEAP__LOOSE && p.k == p.s ? NEAP__WHOLE : p.kind;
  size_t n = (size_t)x->chain->n_stages;
  return &x->lists[kind][((size_t)p.s * n + (size_t)p.k) * (n + 2) + (size_t)p.column];
}

static int64_t *at(const neap__apart *x, int64_t *table, int s, int u) {
  return &table[(size_t)s * ((size_t)x->chain->n_stages + 1) + (size_t)u];
}

/* ---- choices: begins with kind -1; 0 past the last ---- */

static int begin_kept(const neap__apart *x, neap__problem p, neap__choice *c, int way) {
  *c = (neap__choice){NEAP__KEPT, way, p.s + 1, p.s + 1};
  return p.k == p.s && way < x->chain->parts[p.s].n_ways;
}

static int begin_split(neap__problem p, neap__choice *c) {
  int j = p.k > p.s ? p.k : p.s + 1;
  *c = (neap__choice){NEAP__SPLIT, 0, 0, j};
  return 1;
}

static int next_loose(neap__problem p, int t, neap__choice *c) {
  if (c->kind < 0 || c->kind == NEAP__FREED) {
    c->kind = c->kind < 0 ? NEAP__FREED : NEAP__MOVE;
    return 1;
  }
  c->j = c->kind == NEAP__MOVE ? p.k + 1 : c->j + 1;
  c->kind = NEAP__SPLIT;
  return c->j < t;
}

int neap__choice_next(const neap__apart *x, neap__problem p, neap__choice *c) {
  int t = neap__problem_end(x, p);
  if (p.kind == NEAP__LOOSE) {
    return next_loose(p, t, c);
  }
  if (p.kind == NEAP__BRANCH) {
    *c = (neap__choice){NEAP__BOUNDARY, 0, c->kind < 0 ? p.s + 1 : c->u + 1, p.k};
    return c->u <= p.k;
  }
  if (t - p.s == 1) {
    int more = c->kind < 0 ? 0 : c->kind == NEAP__LEAF ? c->way + 1 : INT32_MAX;
    *c = (neap__choice){NEAP__LEAF, more, 0, 0};
    if (more < neap__leaf_ways(x->chain, p.s, neap__problem_is_first(x, p))) {
      return 1;
    }
    c->kind = NEAP__AGAIN;
    return neap__problem_is_first(x, p) && more < INT32_MAX;
  }
  if (c->kind < 0 && begin_kept(x, p, c, 0)) {
    return 1;
  }
  if (c->kind == NEAP__KEPT && p.k == p.s) {
    if (++c->u <= c->j) {
      return 1;
    }
    c->u = p.s + 1;
    if (++c->j < t || begin_kept(x, p, c, c->way + 1)) {
      return 1;
    }
  }
  if (c->kind == NEAP__KEPT) {
    return begin_split(p, c);
  }
  if (c->kind == NEAP__SPLIT && ++c->j < t) {
    return 1;
  }
  int more = c->kind == NEAP__SPLIT && neap__problem_is_first(x, p);
  c->kind = NEAP__AGAIN;
  return more;
}

static neap__list shifted(neap__apart *x, neap__list list, int64_t bytes) {
  for (int64_t k = 0; k < list.n; k++) {
    x->shifted[k] = (neap__point){list.points[k].peak + bytes, list.points[k].cost};
  }
  x->shifted[list.n] = (neap__point){NEAP__END, 0};
  return (neap__list){x->shifted, list.n};
}

static neap__split kept_split(neap__apart *x, neap__problem p, const neap__choice *c) {
  const neap__chain *chain = x->chain;
  const neap__way *way = &chain->ways[p.s][c->way];
  int64_t grad =
      neap__problem_is_first(x, p) ? 0 : chain->parts[neap__problem_end(x, p) - 1].grad_in;
  int64_t record = way->record_bytes + way->record_out;
  neap__split split = {
      .a = *neap__problem_list(x, (neap__problem){NEAP__LOOSE, c->u, c->j, p.column}),
      .below = neap__kept_bytes(chain, p.s, c->way),
      .floor = neap__kept_peak(chain, p.s, c->way, grad),
      .cost = neap__kept_cost(chain, p.s, c->way) + neap__sweep_cost(chain, p.s + 1, c->u),
  };
  if (c->u > p.s + 1) {
    int64_t sweep = *at(x, x->after_peaks, p.s, c->u) + record + grad;
    split.floor = sweep > split.floor ? sweep : split.floor;
    split.below = chain->parts[p.s].in_bytes + record - neap__shared_bytes(chain, p.s, c->u);
  }
  if (c->j > p.s + 1) {
    split.b = shifted(x, *neap__problem_list(x, (neap__problem){NEAP__WHOLE, p.s, p.s + 1, c->j}),
                      record);
  }
  return split;
}

/* NEAP__LEAF is no split of lists: points needs two places */
neap__split neap__choice_split(neap__apart *x, neap__problem p, const neap__choice *c,
                               neap__point *points) {
  const neap__chain *chain = x->chain;
  int n = chain->n_stages;
  int64_t grad =
      neap__problem_is_first(x, p) ? 0 : chain->parts[neap__problem_end(x, p) - 1].grad_in;
  if (c->kind == NEAP__LEAF) {
    points[0].peak = neap__leaf_peak(chain, p.s, c->way, chain->parts[p.s].grad_in,
                                     neap__problem_is_first(x, p));
    points[0].cost = neap__leaf_cost(chain, p.s, c->way, neap__problem_is_first(x, p));
    points[1] = (neap__point){NEAP__END, 0};
    return (neap__split){.a = {points, 1}};
  }
  if (c->kind == NEAP__KEPT) {
    return kept_split(x, p, c);
  }
  if (c->kind == NEAP__AGAIN) {
    /* the first pass keeps x_s alone; the loss gradient appears at its end, and all begins anew */
    int64_t sweep = *at(x, x->sweep_peaks, p.s, n);
    int64_t end = chain->parts[p.s].in_bytes + chain->parts[n - 1].out_bytes -
                  neap__shared_bytes(chain, p.s, n) + chain->parts[n - 1].grad_in;
    return (neap__split){
        .a = *neap__problem_list(x, (neap__problem){NEAP__WHOLE, p.s, p.k, n}),
        .floor = sweep > end ? sweep : end,
        .cost = neap__sweep_cost(chain, p.s, n),
    };
  }
  if (c->kind == NEAP__SPLIT) {
    neap__split split = {
        .a = *neap__problem_list(x, (neap__problem){NEAP__BRANCH, p.s, c->j, p.column})};
    if (c->j > p.k) {
      split.b = *neap__problem_list(x, (neap__problem){p.kind, p.s, p.k, c->j});
    }
    return split;
  }
  if (c->kind == NEAP__FREED) {
    return (neap__split){
        .a = *neap__problem_list(x, (neap__problem){NEAP__WHOLE, p.s, p.k, p.column})};
  }
  if (c->kind == NEAP__MOVE) {
    return (neap__split){
        .a = *neap__problem_list(x, (neap__problem){NEAP__LOOSE, p.s + 1, p.k, p.column}),
        .floor = chain->parts[p.s].in_bytes + grad + chain->parts[p.s].nothing_peak,
        .cost = neap__sweep_cost(chain, p.s, p.s + 1),
    };
  }
  return (neap__split){
      .a = *neap__problem_list(x, (neap__problem){NEAP__LOOSE, c->u, p.k, p.column}),
      .below = chain->parts[p.s].in_bytes - neap__shared_bytes(chain, p.s, c->u),
      .floor = *at(x, x->sweep_peaks, p.s, c->u) + grad,
      .cost = neap__sweep_cost(chain, p.s, c->u),
  };
}
