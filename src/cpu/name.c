/* The name of the matrix product, for manifests: public, so it is spelled as neap.h spells it. */
#include "cpu/cpu.h"

const char *neap_gemm_name(void) {
  return neap__cpu_gemm_name();
}
