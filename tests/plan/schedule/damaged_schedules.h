#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "plan/schedule_samples.h"

// Changes to a schedule's actions, which are named by their text, and what verify() says of them.
namespace smp {

using Actions = std::vector<schedule::Action>;

// Index of the first action whose text is this.
inline size_t find(const Actions& actions, const std::string& text) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (to_string(actions[i]) == text) return i;
  }
  FAIL("no action '" << text << "'");
  return 0;
}

inline void remove(Actions& actions, const std::string& text) {
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(find(actions, text)));
}

inline void move_before(Actions& actions, const std::string& what, const std::string& where) {
  const schedule::Action action = actions[find(actions, what)];
  remove(actions, what);
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(find(actions, where)), action);
}

inline void repeat(Actions& actions, const std::string& text) {
  const size_t at = find(actions, text);
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at), actions[at]);
}

// What verify() says of a sample whose actions, by stage, were damaged.
inline std::string verdict_of_stages(const SampleSchedule& sample,
                                     const std::function<void(std::vector<Actions>&)>& damage) {
  const schedule::ScheduleParameters parameters = sample_parameters(sample);
  schedule::Schedule schedule = make_schedule(parameters);
  REQUIRE_FALSE(verify(schedule, parameters).has_value());
  damage(schedule.actions);
  return verify(schedule, parameters).value_or("all is well");
}

// Of one stage's.
inline std::string verdict(const SampleSchedule& sample,
                           const std::function<void(Actions&)>& damage) {
  return verdict_of_stages(sample, [&](std::vector<Actions>& stages) { damage(stages[0]); });
}

}  // namespace smp
