#pragma once

#include <cstdint>

namespace smp {
struct ModelSpec;
}

namespace smp::model {

// Numbers of a step's router loads (schedule::ActionKind::kRouterLoads): for each layer of experts,
// in the order of the model, how many of the step's tokens chose each of them. 0: no router's loss
// counts them. Pure.
int64_t router_loads(const ModelSpec& model);

}  // namespace smp::model
