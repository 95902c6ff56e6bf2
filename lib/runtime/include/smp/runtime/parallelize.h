#pragma once

#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/plan.h"
#include "smp/plan/schedule.h"
#include "smp/runtime/flat_parameters.h"
#include "smp/runtime/gpu_door.h"
#include "smp/runtime/groups.h"
#include "smp/runtime/layer.h"
#include "smp/runtime/loss_scale.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/optimizer.h"

namespace smp {

// One rank's share of the model, ready to train: what apply_parallelism() makes of a plan. Members
// are in the order in which they depend on each other. Used by the rank's own thread.
struct ParallelModel {
  std::shared_ptr<Gpu> gpu;  // null: the device is cpu
  // What is offloaded, a second pool where the device is cpu; with a GPU all memory of the host.
  std::unique_ptr<MemoryLedger> host;
  std::unique_ptr<RankGroups> groups;
  MemoryCharge segments;  // the groups' shared memory
  std::unique_ptr<FlatParameters> parameters;
  std::vector<std::unique_ptr<Layer>> layers;  // of this stage, in forward order
  std::unique_ptr<Optimizer> optimizer;
  LossScale loss_scale;         // fp16; else 1, and stays
  std::vector<Action> actions;  // one step of this rank
};

// Builds rank world.rank()'s share under the caller's LedgerScope, on `gpu` where there is one.
// `ranks_of_host` share the memory of its host, 0: as many as the plan puts on one.
// Groups whose plan says nccl are split off `among_gpus`, where there is one, the others off
// `world`. Collective over `world`; all must outlive the result, as must the ledger.
ParallelModel apply_parallelism(const Plan& plan, Communicator& world, MemoryLedger& ledger,
                                std::shared_ptr<Gpu> gpu = nullptr, int64_t ranks_of_host = 0,
                                Communicator* among_gpus = nullptr);

}  // namespace smp
