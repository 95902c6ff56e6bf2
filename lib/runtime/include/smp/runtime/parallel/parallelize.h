#pragma once

#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/gpu/gpu_loader.h"
#include "smp/runtime/layers/layer.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/optim/loss_scale.h"
#include "smp/runtime/optim/optimizer.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::parallel {

// One rank's share of the model, ready to train: the result of apply_parallelism(). Each member
// depends only on those before it. Used by the rank's own thread.
struct ParallelModel {
  std::shared_ptr<gpu::Gpu> gpu;  // null: the device is cpu
  // On CPUs: memory of offloaded tensors. With a GPU: all host memory.
  std::unique_ptr<ledger::MemoryLedger> host;
  std::unique_ptr<RankGroups> groups;
  ledger::MemoryCharge segments;  // the groups' shared memory
  std::unique_ptr<parameters::FlatParameters> parameters;
  std::vector<std::unique_ptr<layers::Layer>> layers;  // of this stage, in forward order
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LossScale loss_scale;            // always 1 without fp16
  std::vector<schedule::Action> actions;  // one step of this rank
};

// Builds rank world.rank()'s share under the caller's LedgerScope, on `gpu` unless it is null.
// `ranks_of_host` ranks share the memory of its host; 0 = the plan's processes per host. Groups for
// which the plan says nccl are split off `among_gpus` unless it is null, the others off `world`.
// Collective over `world`. All arguments must outlive the result.
ParallelModel apply_parallelism(const Plan& plan, comm::Communicator& world,
                                ledger::MemoryLedger& ledger,
                                std::shared_ptr<gpu::Gpu> gpu = nullptr, int64_t ranks_of_host = 0,
                                comm::Communicator* among_gpus = nullptr);

}  // namespace smp::parallel
