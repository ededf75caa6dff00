/* What sum and mean share: sums over everything or over one dim, times a factor. */
#ifndef NEAP_CPU_REDUCE_H
#define NEAP_CPU_REDUCE_H

#include "cpu/cpu.h"

/* attrs[0]: the dim, -1 = all. is_mean: divides by the number of elements summed. */
int neap__cpu_reduce_forward(const neap_call *call, int is_mean);
int neap__cpu_reduce_backward(const neap_call *call, int is_mean);

#endif
