#pragma once

#include "importers/foreign_keys.h"

// Optimizer, learning rate and compilation of a torchtitan configuration.
namespace smp::importers {

void read_torchtitan_optimizer(ForeignReader& reader);
void read_torchtitan_learning_rate(ForeignReader& reader);
void read_torchtitan_compilation(ForeignReader& reader);

}  // namespace smp::importers
