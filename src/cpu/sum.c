/* sum over everything or over one dim: see reduce.c. */
#include "cpu/reduce.h"

int neap__cpu_sum_forward(const neap_call *call) {
  return neap__cpu_reduce_forward(call, 0);
}

int neap__cpu_sum_backward(const neap_call *call) {
  return neap__cpu_reduce_backward(call, 0);
}
