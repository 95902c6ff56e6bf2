#include "schedule/offload_actions.h"

#include <cstddef>
#include <utility>

namespace smp::schedule {
namespace {

// A call whose tensors may be offloaded: the positions of its forward and of the first use of its
// saved tensors.
struct KeptCall {
  size_t forward = 0;
  size_t use = 0;
};

// In the order of their uses.
std::vector<KeptCall> kept_calls(const ScheduleParameters& parameters,
                                 const std::vector<Action>& actions) {
  // By layer: its forwards, and how many of them have been used. Microbatches pass it in order.
  struct Layer {
    std::vector<size_t> forwards;
    size_t used = 0;
  };
  std::vector<Layer> layers(parameters.offloaded.size());
  std::vector<KeptCall> calls;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.layer < 0 || !is_offloaded(parameters, action.layer)) continue;
    Layer& layer = layers[static_cast<size_t>(action.layer)];
    if (action.kind == ActionKind::kForward) {
      layer.forwards.push_back(i);
      continue;
    }
    const bool again = checkpoint_of(parameters, action.layer) >= 0;
    if (action.kind != (again ? ActionKind::kRecompute : ActionKind::kBackward)) continue;
    calls.push_back({layer.forwards[layer.used++], i});
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
  struct Fetch {
    size_t before = 0;  // which action
    size_t forward = 0;
  };
  std::vector<Fetch> fetches;  // in the order of `before`, as calls are in that of their uses
  std::vector<bool> is_offloaded_after(actions.size(), false);
  for (size_t k = 0; k < calls.size(); ++k) {
    const auto horizon = static_cast<size_t>(parameters.loading_horizon);
    const size_t before = calls[k < horizon ? 0 : k - horizon].use;
    if (calls[k].forward > before) continue;
    is_offloaded_after[calls[k].forward] = true;
    fetches.push_back({before, calls[k].forward});
  }
  std::vector<Action> all;
  all.reserve(actions.size() + 2 * fetches.size());
  auto fetch = fetches.begin();
  for (size_t i = 0; i < actions.size(); ++i) {
    for (; fetch != fetches.end() && fetch->before == i; ++fetch) {
      all.push_back(of_call(ActionKind::kFetch, actions[fetch->forward]));
    }
    all.push_back(actions[i]);
    if (is_offloaded_after[i]) all.push_back(of_call(ActionKind::kOffload, actions[i]));
  }
  actions = std::move(all);
}

}  // namespace smp::schedule
