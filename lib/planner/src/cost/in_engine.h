#pragma once

#include "smp/plan/base/dtype.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::cost {

// Whether our engine trains the job, on CPUs or GPUs.
bool is_of_engine(const JobSpec& job);

// Whether the job's layers are those of our engine on CPUs, whose bytes lib/plan knows exactly
// (memory_of()).
bool runs_in_engine(const JobSpec& job);

// Whether selective recompute makes the first product of each MLP again, as our engine does on CPUs
// and GPUs. Elsewhere it is the core of attention.
bool recomputes_mlps(const JobSpec& job);

// The type in which our engine computes.
DType engine_dtype(Precision precision);

}  // namespace smp::cost
