#pragma once

#include <string>
#include <vector>

#include "runtime/engine/exposed_communication.h"

namespace smp {

// What layers hide of the messages inside them: real ones, on 4 ranks, over links of a fixed
// bandwidth. Computing takes the CPU time that it takes, and the links carry all messages of a step
// in half of it.
struct LayerMessages {
  std::string name;
  Plan plan;
};
// Rings, exchanged heads, both, and experts over ranks, with a shared expert and without.
std::vector<LayerMessages> layer_messages();

ExposedCommunication exposed_in_layers(const Plan& plan);

}  // namespace smp
