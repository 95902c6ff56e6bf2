#pragma once

#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/gpu/gpu_door.h"
#include "smp/runtime/layers/layer.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/optim/loss_scale.h"
#include "smp/runtime/optim/optimizer.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::parallel {

// One rank's share of the model, ready to train: what apply_parallelism() makes of a plan. Members
// are in the order in which they depend on each other. Used by the rank's own thread.
struct ParallelModel {
  std::shared_ptr<gpu::Gpu> gpu;  // null: the device is cpu
  // What is offloaded, a second pool where the device is cpu; with a GPU all memory of the host.
  std::unique_ptr<ledger::MemoryLedger> host;
  std::unique_ptr<RankGroups> groups;
  ledger::MemoryCharge segments;  // the groups' shared memory
  std::unique_ptr<parameters::FlatParameters> parameters;
  std::vector<std::unique_ptr<layers::Layer>> layers;  // of this stage, in forward order
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LossScale loss_scale;            // fp16; else 1, and stays
  std::vector<schedule::Action> actions;  // one step of this rank
};

// Builds rank world.rank()'s share under the caller's LedgerScope, on `gpu` where there is one.
// `ranks_of_host` share the memory of its host, 0: as many as the plan puts on one.
// Groups whose plan says nccl are split off `among_gpus`, where there is one, the others off
// `world`. Collective over `world`; all must outlive the result, as must the ledger.
ParallelModel apply_parallelism(const Plan& plan, comm::Communicator& world,
                                ledger::MemoryLedger& ledger,
                                std::shared_ptr<gpu::Gpu> gpu = nullptr, int64_t ranks_of_host = 0,
                                comm::Communicator* among_gpus = nullptr);

}  // namespace smp::parallel
