#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/memory/event_peaks.h"

// Known traps of a plan that is legal and fits: what makes such trainings slow or wrong. Each is a
// rule with an id that never changes. Rules about tensor cores look at accelerators alone. Pure;
// any thread.
namespace smp::traps {

struct RuleWords {
  std::string_view id;       // "smp/vocabulary-not-padded"
  std::string_view key;      // of the job, that it is about
  std::string_view summary;  // one line
};
// All rules, in the order of docs/check.md.
std::vector<RuleWords> rules();

struct Trap {
  std::string id;
  std::string key;   // "model.vocab_size"
  std::string text;  // what is wrong, with its numbers, and what to do
};

// `events`: event_peaks() of the fullest ranks.
std::vector<Trap> traps_of(const Plan& plan, const std::vector<memory::EventPeak>& events);

}  // namespace smp::traps
