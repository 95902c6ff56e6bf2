#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/strategy.h"

// The inverse of planning: the largest model, batch or sequence that fits and reaches a step time,
// or the fewest hosts. Found by bisection over searches: the answer fits, and the next value does
// not. Pure; any thread.
namespace smp::search {

// model: layers and width together, at the shape of the job's model (heads in eights, layers, FFN
// and KV heads in proportion, head_dim kept). layers: at its width. batch: samples of a step.
// sequence: tokens, at the job's batch. hosts: the fewest.
enum class Quantity { kModel, kLayers, kBatch, kSequence, kHosts };
std::string_view name_of(Quantity quantity);
std::optional<Quantity> quantity_of(std::string_view name);

struct SolveRequest {
  Quantity quantity = Quantity::kModel;
  double step_s = 0;  // to be reached; 0 = any
  choice::Strategy strategy = choice::Strategy::kFastest;
};

struct SolveResult {
  bool found = false;
  int64_t value = 0;         // heads, layers, samples, tokens or hosts
  std::string words;         // "40 layers of width 5,120: 13.0 B parameters"
  Plan plan;                 // of the answer
  std::string next_words;    // the next value, that was searched as well if a job may have it
  std::string next_problem;  // why it is not the answer; empty of one host
  int64_t searches = 0;
};

SolveResult solve(const JobSpec& job, const SolveRequest& request);

std::string solve_text(const SolveRequest& request, const SolveResult& result);
std::string solve_json(const SolveRequest& request, const SolveResult& result);

}  // namespace smp::search
