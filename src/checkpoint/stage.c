/* Stages of a chain: what their fields may hold. Looked at once, before a plan is made or judged.
 */
#include "checkpoint/checkpoint.h"

static int stage_negative(int i, const char *field, int64_t value) {
  return neap__error(NEAP_ERR_INVALID, "stage %d: %s is %lld, it cannot be negative", i, field,
                     (long long)value);
}

static int mode_check(int i, const neap_stage *stage, int m, int n_in) {
  const neap_mode *mode = &stage->modes[m];
  const struct {
    const char *name;
    int64_t value;
  } fields[] = {{"saved_bytes", mode->saved_bytes},
                {"forward_extra_bytes", mode->forward_extra_bytes},
                {"backward_extra_bytes", mode->backward_extra_bytes},
                {"forward_cost", mode->forward_cost},
                {"backward_cost", mode->backward_cost},
                {"forward_peak_bytes", mode->forward_peak_bytes},
                {"backward_peak_bytes", mode->backward_peak_bytes}};
  for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
    if (fields[k].value < 0) {
      return neap__error(NEAP_ERR_INVALID, "stage %d, mode %d: %s is %lld, it cannot be negative",
                         i, m + 1, fields[k].name, (long long)fields[k].value);
    }
  }
  if (stage->measured && (mode->saves_in >> n_in != 0 || mode->saves_out >> stage->n_out != 0)) {
    return neap__error(NEAP_ERR_INVALID,
                       "stage %d, mode %d: saves_in %u or saves_out %u names a tensor past the %d "
                       "inputs and %d outputs",
                       i, m + 1, mode->saves_in, mode->saves_out, n_in, (int)stage->n_out);
  }
  return NEAP_OK;
}

static int stage_check_modes(int i, const neap_stage *stage, int n_in) {
  if (stage->n_modes < 0 || stage->n_modes > NEAP_MAX_MODES ||
      (stage->n_modes > 0 && stage->modes == NULL)) {
    return neap__error(NEAP_ERR_INVALID, "stage %d: %d modes%s, allowed are 0..%d", i,
                       (int)stage->n_modes, stage->modes == NULL ? " (NULL)" : "", NEAP_MAX_MODES);
  }
  int code = NEAP_OK;
  for (int m = 0; m < stage->n_modes && code == NEAP_OK; m++) {
    code = mode_check(i, stage, m, n_in);
  }
  return code;
}

static int stage_check_measured(int i, const neap_stage *stage, int n_in) {
  for (int k = 0; k < 4; k++) {
    if (stage->forward_peak_bytes[k] < 0) {
      return stage_negative(i, "a forward_peak_bytes", stage->forward_peak_bytes[k]);
    }
  }
  if (stage->backward_peak_bytes < 0) {
    return stage_negative(i, "backward_peak_bytes", stage->backward_peak_bytes);
  }
  if (stage->grad_bytes < 0) {
    return stage_negative(i, "grad_bytes", stage->grad_bytes);
  }
  if (stage->n_out < 1 || stage->n_out > NEAP_MAX_BOUNDARY) {
    return neap__error(NEAP_ERR_INVALID, "stage %d: %d outputs, allowed are 1..%d", i,
                       (int)stage->n_out, NEAP_MAX_BOUNDARY);
  }
  for (int k = 0; k < stage->n_out; k++) {
    int source = stage->out_source[k];
    if (source >= n_in || source < -1 - k) {
      return neap__error(NEAP_ERR_INVALID,
                         "stage %d: output %d has source %d, allowed are -1, inputs 0..%d and "
                         "earlier outputs (-2 - j)",
                         i, k, source, n_in - 1);
    }
    if (stage->out_storage_bytes[k] < 0) {
      return stage_negative(i, "an out_storage_bytes", stage->out_storage_bytes[k]);
    }
  }
  if (stage->saves_in >> n_in != 0 || stage->saves_out >> stage->n_out != 0) {
    return neap__error(NEAP_ERR_INVALID,
                       "stage %d: saves_in %u or saves_out %u names a tensor past the %d inputs "
                       "and %d outputs",
                       i, stage->saves_in, stage->saves_out, n_in, (int)stage->n_out);
  }
  return NEAP_OK;
}

int neap__stages_check(int n_stages, const neap_stage *stages) {
  if (stages == NULL || n_stages < 1 || n_stages > NEAP__MAX_STAGES) {
    return neap__error(NEAP_ERR_INVALID, "a chain of %d stages%s: allowed are 1..%d", n_stages,
                       stages == NULL ? " (NULL)" : "", NEAP__MAX_STAGES);
  }
  int n_in = NEAP_MAX_BOUNDARY;
  for (int i = 0; i < n_stages; i++) {
    const neap_stage *stage = &stages[i];
    const struct {
      const char *name;
      int64_t value;
    } fields[] = {{"out_bytes", stage->out_bytes},
                  {"saved_bytes", stage->saved_bytes},
                  {"forward_extra_bytes", stage->forward_extra_bytes},
                  {"backward_extra_bytes", stage->backward_extra_bytes},
                  {"forward_cost", stage->forward_cost},
                  {"backward_cost", stage->backward_cost},
                  {"recompute_cost", stage->recompute_cost},
                  {"recompute_extra_bytes", stage->recompute_extra_bytes}};
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
      if (fields[k].value < 0) {
        return stage_negative(i, fields[k].name, fields[k].value);
      }
    }
    int code = stage->measured ? stage_check_measured(i, stage, n_in) : NEAP_OK;
    code = code == NEAP_OK ? stage_check_modes(i, stage, n_in) : code;
    if (code != NEAP_OK) {
      return code;
    }
    n_in = stage->measured ? stage->n_out : 1;
  }
  return NEAP_OK;
}
