#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::cost {

// What a matmul runs on: the rate that large ones reach, multiprocessors to which output tiles are
// dealt (0 = no waves: flops / rate), and bytes a second of memory.
struct MatmulRates {
  double flops_per_s = 0;
  double multiprocessors = 0;
  double memory_bytes_per_s = 0;
  double element_bytes = 2;
};
MatmulRates matmul_rates(const ClusterSpec& cluster, Precision precision);

// Seconds of `batch` products [m, k] x [k, n]. Output tiles run in waves over the multiprocessors;
// the best of the tile shapes of cuBLAS, cut along k where there are too few; never less than what
// reading and writing the operands takes. 0 when the rates are unknown. docs/time.md. Pure.
double matmul_s(const MatmulRates& rates, double batch, double m, double n, double k);

}  // namespace smp::cost
