/* Lists of Pareto points as step functions, and their lower envelope.
 *
 * Most splits of an interval are nowhere better than the ones before them. So a split is walked by
 * the cells of the envelope: while its cost at a cell's end is no less than the envelope's at the
 * start, nothing in between can be below, and the stride over cells doubles.
 */
#include <string.h>

#include "checkpoint/solver.h"

enum { LONG_STRIDE = 8, MOST_WAIT = 64 };

/* where a split is: the points of a and b in effect. Lists end in a point at NEAP__END. */
typedef struct walker {
  const neap__split *split;
  const neap__point *a, *b;
  int64_t least; /* no peak gives less */
} walker;

static const neap__point nothing[] = {{0, 0}, {NEAP__END, 0}};

static inline int64_t cost_of(const walker *w) {
  return w->split->cost + w->a->cost + w->b->cost;
}

/* the last point before `end` with peak <= m; p is one */
static inline const neap__point *last_within(const neap__point *p, const neap__point *end,
                                             int64_t m) {
  int64_t step = 1;
  while (end - p > step && p[step].peak <= m) {
    p += step;
    step *= 2;
  }
  int64_t past = end - p < step ? end - p : step; /* p[past] is past m, or the end */
  while (past > 1) {
    int64_t half = past / 2;
    int within = p[half].peak <= m;
    p += within ? half : 0;
    past = within ? past - half : half;
  }
  return p;
}

static inline void move_to(walker *w, int64_t m) {
  const neap__split *s = w->split;
  w->a = last_within(w->a, s->a.points + s->a.n, m - s->below);
  w->b = s->b.n > 0 ? last_within(w->b, s->b.points + s->b.n, m) : w->b;
}

/* At the first peak where the split is feasible. */
static int64_t begin(walker *w, const neap__split *s) {
  *w = (walker){.split = s, .a = s->a.points, .b = s->b.n > 0 ? s->b.points : nothing};
  w->least = s->cost + s->a.points[s->a.n - 1].cost;
  int64_t m = w->a->peak + s->below;
  m = m > s->floor ? m : s->floor;
  if (s->b.n > 0) {
    w->least += s->b.points[s->b.n - 1].cost;
    m = w->b->peak > m ? w->b->peak : m;
  }
  move_to(w, m);
  return m;
}

/* where the split's cost next falls; NEAP__END or more: nowhere */
static inline int64_t next_fall(const walker *w) {
  int64_t a = w->a[1].peak + w->split->below, b = w->b[1].peak;
  return a < b ? a : b;
}

static inline void fall(walker *w, int64_t m) {
  w->a += w->a[1].peak + w->split->below == m;
  w->b += w->b[1].peak == m;
}

neap__point neap__list_point(neap__list list, int64_t m) {
  return *last_within(list.points, list.points + list.n, m);
}

int64_t neap__split_cost(const neap__split *split, int64_t m) {
  walker w;
  if (split->a.n == 0 || begin(&w, split) > m) {
    return -1;
  }
  move_to(&w, m);
  return cost_of(&w);
}

/* Strides over cells of the envelope from point e while the split stays no better; returns the
 * point that is then in effect. */
static const neap__point *stride(walker *w, const neap__point *e, const neap__point *end,
                                 int64_t *wait) {
  int64_t step = LONG_STRIDE;
  for (; end - e > step; step *= 2) {
    walker ahead = *w;
    move_to(&ahead, e[step].peak - 1);
    if (cost_of(&ahead) < e->cost) {
      break;
    }
    e += step;
    *w = ahead;
    fall(w, e->peak);
  }
  *wait = step > LONG_STRIDE ? 1 : *wait < MOST_WAIT ? 2 * *wait : MOST_WAIT;
  return e;
}

/* Goes on from peak m, where envelope point *at is in effect, to the first peak where the split is
 * below the envelope; -1 when there is none. */
static int64_t skip_dominated(walker *w, const neap__point **at, const neap__point *end,
                              int64_t m) {
  const neap__point *e = *at, *a = w->a, *b = w->b;
  const int64_t below = w->split->below, base = w->split->cost, least = w->least;
  int64_t run = 0, wait = 1;
  while (base + a->cost + b->cost >= e->cost) {
    if (e->cost <= least) {
      return -1;
    }
    if (run++ == wait) {
      w->a = a;
      w->b = b;
      e = stride(w, e, end, &wait);
      a = w->a;
      b = w->b;
      run = 0;
      continue;
    }
    /* one cell: the split at its end against the envelope at its start */
    int64_t next = e[1].peak;
    const neap__point *a_end = a, *b_end = b;
    while (a_end[1].peak < next - below) {
      a_end++;
    }
    while (b_end[1].peak < next) {
      b_end++;
    }
    if (base + a_end->cost + b_end->cost >= e->cost) {
      e++;
      m = next;
      a = a_end + (a_end[1].peak == next - below);
      b = b_end + (b_end[1].peak == next);
      continue;
    }
    w->a = a;
    w->b = b;
    do { /* it crosses in here */
      m = next_fall(w);
      fall(w, m);
    } while (cost_of(w) >= e->cost);
    a = w->a;
    b = w->b;
  }
  w->a = a;
  w->b = b;
  *at = e;
  return m;
}

/* The split is below the envelope at m: writes its points until the envelope, whose next point is
 * *at, is no worse again. Returns that peak, or -1 when it stays above. */
static int64_t write_below(walker *w, const neap__point **at, int64_t m, neap__point **to) {
  const neap__point *e = *at;
  neap__point *out = *to;
  int64_t cost = cost_of(w), result = -1;
  *out++ = (neap__point){m, cost};
  for (;;) {
    int64_t next = next_fall(w);
    m = next < e->peak ? next : e->peak;
    if (m >= NEAP__END) {
      break;
    }
    if (next == m) {
      fall(w, m);
      cost = cost_of(w);
    }
    if (e->peak == m) {
      if (e->cost <= cost) {
        result = m;
        break;
      }
      e++;
    }
    if (next == m) {
      *out++ = (neap__point){m, cost};
    }
  }
  *at = e;
  *to = out;
  return result;
}

static int reserve(neap__envelope *envelope, int64_t n) {
  if (n <= envelope->capacity) {
    envelope->points[envelope->n].peak = NEAP__END;
    return NEAP_OK;
  }
  int64_t capacity = n < 1024 ? 2048 : 2 * n;
  neap__point *points;
  /* the gate to host memory counts without a lock */
#pragma omp critical(neap_solver_memory)
  points = neap__host_alloc(2 * (size_t)capacity * sizeof *points);
  if (points == NULL) {
    return NEAP_ERR_MEMORY;
  }
  points->peak = NEAP__END;
  if (envelope->n > 0) {
    memcpy(points, envelope->points, (size_t)(envelope->n + 1) * sizeof *points);
  }
  neap__envelope_free(envelope);
  envelope->points = points;
  envelope->next = points + capacity;
  envelope->capacity = capacity;
  return NEAP_OK;
}

void neap__envelope_free(neap__envelope *envelope) {
  /* points and next swap: the block begins at the lower one */
  neap__host_free(envelope->points < envelope->next ? envelope->points : envelope->next);
  envelope->points = envelope->next = NULL;
  envelope->capacity = 0;
}

static neap__point *copy(neap__point *to, const neap__point *from, const neap__point *end) {
  memcpy(to, from, (size_t)(end - from) * sizeof *to);
  return to + (end - from);
}

int neap__envelope_add(neap__envelope *envelope, const neap__split *split) {
  if (split->a.n == 0) {
    return NEAP_OK;
  }
  walker w;
  int64_t m = begin(&w, split), n_skipped = 0;
  if (envelope->n > 0 && envelope->points[0].peak <= m) {
    const neap__point *end = envelope->points + envelope->n;
    const neap__point *e = last_within(envelope->points, end, m);
    m = skip_dominated(&w, &e, end, m);
    if (m < 0) {
      return NEAP_OK;
    }
    n_skipped = e + 1 - envelope->points;
  }
  if (reserve(envelope, envelope->n + split->a.n + split->b.n + 2) != NEAP_OK) {
    return NEAP_ERR_MEMORY;
  }
  const neap__point *end = envelope->points + envelope->n;
  const neap__point *e = envelope->points + n_skipped, *uncopied = envelope->points;
  neap__point *start = envelope->next, *out = start;
  while (m >= 0) {
    /* what was passed over stays, but for a point where the split begins to be better */
    out = copy(out, uncopied, e);
    out -= out > start && out[-1].peak == m;
    m = write_below(&w, &e, m, &out);
    uncopied = e;
    if (m >= 0) {
      uncopied += e->cost == out[-1].cost;
      m = skip_dominated(&w, &e, end, m);
      e++;
    }
  }
  out = copy(out, uncopied, end);
  *out = (neap__point){NEAP__END, 0};
  envelope->next = envelope->points;
  envelope->points = start;
  envelope->n = out - start;
  return NEAP_OK;
}

/* ---- memory of points ---- */

typedef struct block {
  struct block *next;
  int64_t n_free;
  neap__point *free;
} block;

neap__point *neap__points_alloc(void **memory, int64_t n) {
  block *b = *memory;
  if (b == NULL || b->n_free < n) {
    /* a short chain needs no more than the first, small one */
    int64_t size = b == NULL ? 1 << 10 : 1 << 16;
    size = n > size ? n : size;
    b = neap__host_alloc(sizeof *b + (size_t)size * sizeof(neap__point));
    if (b == NULL) {
      return NULL;
    }
    *b = (block){*memory, size, (neap__point *)(void *)(b + 1)};
    *memory = b;
  }
  neap__point *points = b->free;
  b->free += n;
  b->n_free -= n;
  return points;
}

void neap__points_free(void *memory) {
  for (block *b = memory; b != NULL;) {
    block *next = b->next;
    neap__host_free(b);
    b = next;
  }
}

/* ---- thinning ---- */

/* keeps a point once the last one kept costs more than delta above it; counts, and writes when
 * asked to */
static int64_t keep_spaced(neap__point *points, int64_t n, int64_t delta, int write) {
  int64_t n_kept = 1, kept_cost = points[0].cost;
  for (int64_t i = 1; i < n; i++) {
    if (kept_cost - points[i].cost > delta || i == n - 1) {
      kept_cost = points[i].cost;
      if (write) {
        points[n_kept] = points[i];
      }
      n_kept++;
    }
  }
  return n_kept;
}

int64_t neap__points_thin(neap__point *points, int64_t n, int64_t cap) {
  if (n <= cap) {
    return n;
  }
  /* a delta of the range keeps two points; the least that keeps few enough, within 1/16 */
  int64_t range = points[0].cost - points[n - 1].cost, low = 0, high = range;
  while (high - low > high / 16) {
    int64_t delta = low + (high - low) / 2;
    if (keep_spaced(points, n, delta, 0) > cap) {
      low = delta + 1;
    } else {
      high = delta;
    }
  }
  return keep_spaced(points, n, high, 1);
}
