#pragma once

#include <stdexcept>

namespace smp::optim {

// Training cannot go on: the loss or the gradient norm is not finite, fp16 cannot hold the
// gradients, or no target of a global batch counts in the loss. All ranks throw the same error.
class TrainingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace smp::optim
