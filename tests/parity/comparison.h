#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/training/trainer.h"
#include "tolerances.h"

// Trains plans with their ranks as threads, and holds what came out against a reference run and
// against what the plan predicts. The checks are doctest's.
namespace smp::parity {

using Weights = std::map<std::string, std::vector<double>>;

struct Run {
  training::RunResult result;
  Weights weights;
};

// On GPUs where `open_gpu` is given.
Run run(const Plan& plan, int64_t steps, const gpu::GpuLoader& open_gpu = {});
// In this folder, from its checkpoint of step `resumed` unless that is 0.
Run run_in(const std::string& folder, const Plan& plan, int64_t steps, int64_t resumed,
           const gpu::GpuLoader& open_gpu = {});

// The largest ones of two runs of a model.
tolerance::Parity differences(const Run& run, const Run& reference);
void check_parity(const Run& run, const Run& reference, const tolerance::Parity& allowed);
// Losses and norms of 16-bit elements against those of a run of fp32.
void check_narrow(const Run& run, const Run& reference, double allowed);

// Every row of the plan's traffic against every row that was counted, both ways.
void check_wire(const Plan& plan, const training::RunResult& result);

// States to the byte, peaks within tolerance::kPeakBytes.
void check_memory(const Plan& plan, const training::RunResult& result);

// All of these, for each layout against one rank.
void compare(const ModelSpec& model, Precision precision, const std::vector<LayoutCase>& cases,
             int64_t steps);

}  // namespace smp::parity
