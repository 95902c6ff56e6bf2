#pragma once

#include <optional>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/run_report.h"
#include "smp/runtime/training/train_options.h"

// Which library computes each fp32 product of a run on CPUs. All ranks choose alike: some products
// are made on several ranks, and must have the same bits there.
namespace smp::training {

// Throws ConfigError if the options name a library for a plan that has no such products, or one
// that this torch does not have.
void check_products(const Plan& plan, const TrainOptions& options);

// What the ranks must have in common: "onednn", "torch" or "not set".
std::string products_asked_for(const TrainOptions& options);

// Collective over `world`, before layers compute: rank 0's speeds choose for all. Returns how many
// products go where; nothing if the plan's are not fp32 ones on CPUs. Rank 0 says so if some are
// torch's.
std::optional<record::ProductCounts> agree_on_products(const Plan& plan,
                                                       const TrainOptions& options,
                                                       comm::Communicator& world);

}  // namespace smp::training
