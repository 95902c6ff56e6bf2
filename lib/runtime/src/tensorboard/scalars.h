#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/metrics.h"

// The data that TensorBoard shows: metrics of each step, and hyperparameters of the run. Pure.
namespace smp::tensorboard {

// Metrics by tag, such as "loss/train" and "throughput/tokens_per_s", without those that were not
// measured in this step. docs/watching.md lists the tags.
std::vector<std::pair<std::string, double>> scalars_of(const record::StepMetrics& metrics);

// Keys of the job and their values in the form of a job file: the keys of kAlways (scalars.cpp),
// and all keys of model, training and parallel whose values are not the default.
std::vector<std::pair<std::string, std::string>> hparams_of(const Plan& plan);

}  // namespace smp::tensorboard
