#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "anywhere.h"
#include "smp/plan/dtype.h"
#include "smp/plan/job_spec.h"

// What makes one optimizer another: the state it keeps of an element and the arithmetic of one
// update, in one pass over memory. Which elements a rank updates, its norms and its state's memory
// are the Optimizer's (smp/runtime/optimizer.h). To add one, write a rule and name it in
// make_update_rule(). Used by the rank's own thread.
namespace smp {

class DeviceFunctions;

inline constexpr size_t kMostStates = 2;

// A range that is updated alike. T: of weights and state, float or double.
template <typename T>
struct UpdateRange {
  int64_t count = 0;
  bool decays = false;  // weight decay applies
  const T* gradients = nullptr;
  T* weights = nullptr;
  std::array<T*, kMostStates> states{};  // as many as the rule names
  // Where layers compute in 16 bits, `weights` are fp32 master weights and the new ones are written
  // here too, rounded to copy_dtype.
  uint16_t* copy = nullptr;
  DType copy_dtype = DType::kBF16;
  // Memory of the device. Nothing is updated where it holds infinity or no number by then; null:
  // always updated.
  const double* only_if_finite = nullptr;

  SMP_ANYWHERE bool is_held_back() const {
    return only_if_finite != nullptr && !(*only_if_finite - *only_if_finite == 0);
  }
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Names of what it keeps of each element; all start as zeros.
  virtual std::vector<const char*> states() const = 0;

  // The factors of update number t, from 1. Gradients are multiplied by gradient_scale as they are
  // read.
  virtual void begin(int64_t t, double learning_rate, double gradient_scale) = 0;
  // By the functions of the device that the range is on.
  virtual void update(const DeviceFunctions& device, const UpdateRange<float>& range) const = 0;
  virtual void update(const DeviceFunctions& device, const UpdateRange<double>& range) const = 0;
};

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSpec& spec);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerSpec& spec);
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerSpec& spec);

}  // namespace smp
