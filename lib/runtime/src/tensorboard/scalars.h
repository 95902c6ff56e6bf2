#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/metrics.h"

// What TensorBoard shows of a run: numbers of each step, and what the run was told. Pure.
namespace smp::tensorboard {

// By tag: "loss/train", "throughput/tokens_per_s" and so on; what was not measured in this step is
// not there. docs/watching.md lists them.
std::vector<std::pair<std::string, double>> scalars_of(const record::StepMetrics& metrics);

// Keys of the job and their values as a job file writes them: those in which runs are compared
// (kAlways in scalars.cpp), and whatever else of model, training and parallel is not the default.
std::vector<std::pair<std::string, std::string>> hparams_of(const Plan& plan);

}  // namespace smp::tensorboard
