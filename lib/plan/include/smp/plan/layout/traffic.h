#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/mesh/mesh.h"

namespace smp {
struct JobSpec;
struct ModelSpec;
struct Plan;
}  // namespace smp
namespace smp::model {
struct LayerSpec;
}

namespace smp::layout {

// One kind of message of one rank in one training step. `count` is as in wire_bytes(). Two rows may
// share a label when their counts differ.
struct Traffic {
  std::string label;  // "tensor.forward", "data.gradients", ...
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
  mesh::Axis axis = mesh::Axis::kWorld;
  int64_t group_size = 1;
  DType dtype = DType::kF32;
  int64_t count = 0;       // elements per call
  int64_t calls = 0;       // per step
  int64_t wire_bytes = 0;  // that this rank sends per step, all calls together
  // Where tokens choose their ranks, counts, calls and bytes are those of an even choice, and these
  // the bytes of the worst one; 0: they are certain.
  int64_t most_wire_bytes = 0;
};

// Numbers of a layer's router in the last message of a step: the tokens that chose each expert, the
// dropped choices, and the two losses of the router. 0: the layer has none.
inline constexpr int64_t kRouterExtraSums = 3;
int64_t router_sums(const ModelSpec& model, const model::LayerSpec& layer);

// Numbers that the last message of a step sums over all ranks: the squared gradient norm of each
// layer, those of the routers, and the loss. Where it is not known before how many targets count in
// the loss (counts_vary() of schedule.h), their number too.
int64_t step_sums(const JobSpec& job);

// All messages of `rank` in one step, in a fixed order. Groups of one rank send nothing and are
// left out.
std::vector<Traffic> step_traffic(const Plan& plan, int64_t rank);

}  // namespace smp::layout
