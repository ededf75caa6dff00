/* The cpu backend: its table of functions and kernels. */
#include "cpu/cpu.h"

static const neap_kernels kernels[NEAP_N_OPS] = {
#define NEAP_X(id, name) [NEAP_OP_##id] = {neap__cpu_##name##_forward, neap__cpu_##name##_backward},
    NEAP_CPU_OPS(NEAP_X)
#undef NEAP_X
};

extern const neap_backend neap__cpu_backend;
const neap_backend neap__cpu_backend = {
    .abi = NEAP_BACKEND_ABI,
    .name = "cpu",
    .computes = 1,
    .alloc = neap__cpu_alloc,
    .free = neap__cpu_free,
    .memory_info = neap__cpu_memory_info,
    .write = neap__cpu_copy,
    .read = neap__cpu_copy,
    .copy = neap__cpu_copy,
    .zero = neap__cpu_zero,
    .fill = neap__cpu_fill,
    .fill_random = neap__cpu_fill_random,
    .accumulate = neap__cpu_accumulate,
    .adamw = neap__cpu_adamw,
    .sgd = neap__cpu_sgd,
    .sum_squares = neap__cpu_sum_squares,
    .lerp = neap__cpu_lerp,
    .kernels = kernels,
#ifdef NEAP_GUARD
    .guard = neap__cpu_guard,
#endif
};
