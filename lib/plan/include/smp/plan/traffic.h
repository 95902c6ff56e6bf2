#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/collective.h"
#include "smp/plan/dtype.h"
#include "smp/plan/mesh.h"
#include "smp/plan/schedule_of_plan.h"

namespace smp {

struct JobSpec;
struct Plan;

// One kind of message of one rank in one training step. `count` is as in wire_bytes(). Two rows may
// share a label when their counts differ.
struct Traffic {
  std::string label;  // "tensor.forward", "data.gradients", ...
  CollectiveOp op = CollectiveOp::kAllReduce;
  Axis axis = Axis::kWorld;
  int64_t group_size = 1;
  DType dtype = DType::kF32;
  int64_t count = 0;       // elements per call
  int64_t calls = 0;       // per step
  int64_t wire_bytes = 0;  // that this rank sends per step, all calls together
};

// Numbers that the last message of a step sums over all ranks: the squared gradient norm of each
// layer, the loss, and how many targets count in it, where that is not known before (counts_vary()
// of schedule.h).
int64_t step_sums(const JobSpec& job);

// All messages of `rank` in one step, in a fixed order. Groups of one rank send nothing and are
// left out.
std::vector<Traffic> step_traffic(const Plan& plan, int64_t rank);

}  // namespace smp
