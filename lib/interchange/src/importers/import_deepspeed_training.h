#pragma once

#include "importers/foreign_keys.h"

// Optimizer, learning rate and loss scale of a DeepSpeed configuration.
namespace smp::importers {

void read_deepspeed_optimizer(ForeignReader& reader);
void read_deepspeed_schedule(ForeignReader& reader);
void read_deepspeed_loss_scale(ForeignReader& reader);  // of one with fp16.enabled

}  // namespace smp::importers
