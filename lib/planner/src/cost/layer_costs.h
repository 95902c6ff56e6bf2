#pragma once

#include <cstdint>
#include <memory>

#include "cost/layer_program.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"

namespace smp::cost {

// What the calls of a job's layers cost. `programs` are those of `kinds`. Pure; any thread.
LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                       std::shared_ptr<const LayerKinds> kinds, const KindPrograms& programs);
LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           std::shared_ptr<const LayerKinds> kinds, const KindPrograms& programs);

// Choices with equal keys and micro batches have equal programs in one job.
uint64_t program_key(const choice::LayoutChoice& choice);

struct LayerCosts {
  LayerBytes bytes;
  LayerSeconds seconds;
};
inline LayerCosts layer_costs(const JobSpec& job, const choice::LayoutChoice& choice,
                              const std::shared_ptr<const LayerKinds>& kinds,
                              const KindPrograms& programs) {
  return {layer_bytes(job, choice, kinds, programs), layer_seconds(job, choice, kinds, programs)};
}
inline LayerCosts layer_costs(const JobSpec& job, const choice::LayoutChoice& choice) {
  const auto kinds = std::make_shared<LayerKinds>(job);
  return layer_costs(job, choice, kinds, kind_programs(job, choice, *kinds));
}

}  // namespace smp::cost
