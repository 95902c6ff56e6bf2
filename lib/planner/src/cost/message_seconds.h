#pragma once

#include "cost/priced_call.h"
#include "smp/plan/program/program.h"

namespace smp::cost {

// Seconds of the messages of a layer's section that its computing waits for, by what they are for.
struct MessageSeconds {
  double tensor = 0, context = 0, expert = 0;

  double all() const { return tensor + context + expert; }
};

// Adds those of one operation. Ring attention's keys and values travel beside the computing of the
// part before, and what is gathered again for a weight's gradient beside that of its input. A
// framework may hide a share of what split sequences send inside blocks. Pure; any thread.
void add_messages(MessageSeconds& sum, const PricedCall& call, const choice::LayoutChoice& choice,
                  const program::LayerProgram& program, const program::Operation& operation,
                  bool is_in_block);

}  // namespace smp::cost
