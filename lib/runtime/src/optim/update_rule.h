#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/update_range.h"
#include "smp/plan/spec/job_spec.h"

// An update rule is the part that differs between optimizers: the state of an element and the
// arithmetic of one update, in one pass over memory. The Optimizer (smp/runtime/optim/optimizer.h)
// owns the rest: which elements a rank updates, norms, and the state's memory. To add an optimizer,
// write a rule and name it in make_update_rule(). Used by the rank's own thread.
namespace smp::kernels {
class DeviceFunctions;
}

namespace smp::optim {

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Names of the states of an element; all start as zeros.
  virtual std::vector<const char*> states() const = 0;

  // Sets the factors of update number t, from 1. Gradients are multiplied by gradient_scale as they
  // are read.
  virtual void begin(int64_t t, double learning_rate, double gradient_scale) = 0;
  // Updates the range with the functions of its device.
  virtual void update(const kernels::DeviceFunctions& device,
                      const kernels::UpdateRange<float>& range) const = 0;
  virtual void update(const kernels::DeviceFunctions& device,
                      const kernels::UpdateRange<double>& range) const = 0;
};

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSpec& spec);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerSpec& spec);
// Of ParameterSpec::follows_load, whatever the optimizer. On CPUs.
std::unique_ptr<UpdateRule> make_load_rule(double rate);
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerSpec& spec);

}  // namespace smp::optim
