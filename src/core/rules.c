/* Shared by the shape rules, and the table of ops. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/rules.h"

neap__op neap__ops[NEAP__MAX_OPS] = {
#define NEAP_X(id, word, fewest, greatest, attributes, rule_name)                                  \
  [NEAP_OP_##id] = {.name = #word,                                                                 \
                    .rule = neap__rule_##rule_name,                                                \
                    .kernel = NEAP_OP_##id,                                                        \
                    .least = fewest,                                                               \
                    .most = greatest,                                                              \
                    .n_attrs = attributes},
    NEAP_OPS(NEAP_X)
#undef NEAP_X
        [NEAP_OP_REGION] = {.name = "checkpoint", .kernel = -1},
};
int neap__n_ops = NEAP_OP_REGION + 1;

const char *neap_op_name(int op) {
  return op >= 0 && op < neap__n_ops ? neap__ops[op].name : NULL;
}

int neap_op_find(const char *name) {
  for (int i = 0; name != NULL && i < neap__n_ops; i++) {
    if (strcmp(neap__ops[i].name, name) == 0) {
      return i;
    }
  }
  return neap__error(NEAP_ERR_NOT_FOUND, "there is no op '%s'", name == NULL ? "(nil)" : name);
}

static int op_add(const char *name, const neap__op *like) {
  if (name == NULL || name[0] == '\0' || strlen(name) > 100) {
    return neap__error(NEAP_ERR_INVALID, "op: expected a name of 1..100 bytes");
  }
  if (neap_op_find(name) >= 0) {
    return neap__error(NEAP_ERR_DUPLICATE, "op: there is an op '%s' already", name);
  }
  if (neap__n_ops == NEAP__MAX_OPS) {
    return neap__error(NEAP_ERR_INVALID, "op: there are %d ops, no more fit", NEAP__MAX_OPS);
  }
  char *copy = neap__host_alloc(strlen(name) + 1); /* kept for the life of the process */
  if (copy == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for an op's name");
  }
  strcpy(copy, name);
  neap__ops[neap__n_ops] = *like;
  neap__ops[neap__n_ops].name = copy;
  return neap__n_ops++;
}

int neap_op_copy(int op, const char *name) {
  if (op < 0 || op >= neap__n_ops || op == NEAP_OP_REGION) {
    return neap__error(NEAP_ERR_NOT_FOUND, "there is no op number %d to copy", op);
  }
  return op_add(name, &neap__ops[op]);
}

int neap_op_lua(const char *name, int n_inputs, int n_outputs) {
  if (n_inputs < 1 || n_inputs > NEAP_MAX_INPUTS || n_outputs < 1 || n_outputs > NEAP_MAX_OUTPUTS) {
    return neap__error(NEAP_ERR_INVALID,
                       "op: expected 1..%d inputs and 1..%d outputs, found %d, %d", NEAP_MAX_INPUTS,
                       NEAP_MAX_OUTPUTS, n_inputs, n_outputs);
  }
  neap__op like = {.kernel = -1, .least = n_inputs, .most = n_inputs, .n_outputs = n_outputs};
  return op_add(name, &like);
}

int neap__fail_shape(const neap__rule *rule, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return neap__error(NEAP_ERR_SHAPE, "%s: %s", rule->name, text);
}

void neap__out_like(neap__rule *rule, int k, const neap_view *view) {
  rule->out[k] = *view;
}

void neap__out_dims(neap__rule *rule, int k, int n_dims, const int64_t *dims) {
  neap_view *out = &rule->out[k];
  memset(out, 0, sizeof *out);
  out->dtype = NEAP_F32;
  out->n_dims = n_dims;
  out->n_elements = 1;
  for (int i = 0; i < n_dims; i++) {
    out->dims[i] = dims[i];
    if (__builtin_mul_overflow(out->n_elements, dims[i], &out->n_elements)) {
      out->n_elements = INT64_MAX / 8; /* apply refuses it */
    }
  }
}

int neap__want_dtype(const neap__rule *r, int input, int dtype) {
  int found = r->in[input]->dtype;
  if (found == dtype) {
    return NEAP_OK;
  }
  return neap__error(NEAP_ERR_DTYPE, "%s: input %d is %s, expected %s", r->name, input + 1,
                     neap__dtype_name(found), neap__dtype_name(dtype));
}

int neap__want_f32(const neap__rule *r) {
  int code = NEAP_OK;
  for (int i = 0; i < r->n_inputs && code >= 0; i++) {
    code = neap__want_dtype(r, i, NEAP_F32);
  }
  return code;
}

void neap__rows(const neap_view *view, int64_t *rows, int64_t *columns) {
  *columns = view->n_dims > 0 ? view->dims[view->n_dims - 1] : 1;
  if (view->n_elements > 0) {
    *rows = view->n_elements / *columns;
    return;
  }
  *rows = 1;
  for (int i = 0; i < view->n_dims - 1; i++) {
    if (view->dims[i] == 0 || __builtin_mul_overflow(*rows, view->dims[i], rows)) {
      *rows = 0; /* empty either way */
      return;
    }
  }
}
