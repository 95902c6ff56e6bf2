#include "schedule/offload_actions.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace smp::schedule {
namespace {

// A call whose tensors may be offloaded: the positions of its forward and of the first use of its
// saved tensors.
struct KeptCall {
  size_t forward = 0;
  size_t use = 0;
};

std::vector<KeptCall> kept_calls(const ScheduleParameters& parameters,
                                 const std::vector<Action>& actions) {
  std::map<std::tuple<int16_t, int32_t, int32_t>, size_t> forwards;  // chunk, microbatch, layer
  std::vector<KeptCall> calls;                                       // in the order of their uses
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.layer < 0 || !is_offloaded(parameters, action.layer)) continue;
    const std::tuple key{action.chunk, action.microbatch, action.layer};
    if (action.kind == ActionKind::kForward) {
      forwards[key] = i;
      continue;
    }
    const bool again = checkpoint_of(parameters, action.layer) >= 0;
    if (action.kind != (again ? ActionKind::kRecompute : ActionKind::kBackward)) continue;
    const auto forward = forwards.find(key);
    calls.push_back({forward->second, i});
    forwards.erase(forward);
  }
  return calls;
}

Action of_call(ActionKind kind, const Action& forward) {
  Action action = forward;
  action.kind = kind;
  return action;
}

}  // namespace

void add_offloads(const ScheduleParameters& parameters, std::vector<Action>& actions) {
  const std::vector<KeptCall> calls = kept_calls(parameters, actions);
  std::vector<char> is_offloaded_after(actions.size(), 0);
  std::vector<std::vector<size_t>> fetches(actions.size());  // forwards, by the action they precede
  for (size_t k = 0; k < calls.size(); ++k) {
    const auto horizon = static_cast<size_t>(parameters.loading_horizon);
    const size_t before = calls[k < horizon ? 0 : k - horizon].use;
    if (calls[k].forward > before) continue;
    is_offloaded_after[calls[k].forward] = 1;
    fetches[before].push_back(calls[k].forward);
  }
  std::vector<Action> all;
  all.reserve(actions.size() + 2 * calls.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    for (const size_t forward : fetches[i]) {
      all.push_back(of_call(ActionKind::kFetch, actions[forward]));
    }
    all.push_back(actions[i]);
    if (is_offloaded_after[i]) all.push_back(of_call(ActionKind::kOffload, actions[i]));
  }
  actions = std::move(all);
}

}  // namespace smp::schedule
