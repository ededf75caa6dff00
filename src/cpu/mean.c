/* mean over everything or over one dim: see reduce.c. */
#include "cpu/reduce.h"

int neap__cpu_mean_forward(const neap_call *call) {
  return neap__cpu_reduce_forward(call, 1);
}

int neap__cpu_mean_backward(const neap_call *call) {
  return neap__cpu_reduce_backward(call, 1);
}
