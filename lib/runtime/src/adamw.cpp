#include <cmath>

#include "adamw_kernel.h"
#include "functions/device_functions.h"
#include "update_rule.h"

// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101; the update of
// torch.optim.AdamW).
namespace smp {
namespace {

class AdamW final : public UpdateRule {
 public:
  explicit AdamW(const OptimizerSpec& spec) : spec_(spec) {}

  std::vector<const char*> states() const override { return {"momentum", "variance"}; }

  void begin(int64_t t, double learning_rate, double gradient_scale) override {
    kept_ = {};
    kept_.scale = gradient_scale;
    kept_.beta1 = spec_.beta1;
    kept_.beta2 = spec_.beta2;
    kept_.epsilon = spec_.epsilon;
    kept_.rate = learning_rate / (1.0 - std::pow(spec_.beta1, static_cast<double>(t)));
    kept_.inverse_root = 1.0 / std::sqrt(1.0 - std::pow(spec_.beta2, static_cast<double>(t)));
    decayed_ = kept_;
    decayed_.keep = 1.0 - learning_rate * spec_.weight_decay;
  }

  void update(const DeviceFunctions& device, const UpdateRange<float>& range) const override {
    device.adamw_update(range.decays ? decayed_ : kept_, range);
  }
  void update(const DeviceFunctions& device, const UpdateRange<double>& range) const override {
    device.adamw_update(range.decays ? decayed_ : kept_, range);
  }

 private:
  OptimizerSpec spec_;
  AdamWFactors kept_, decayed_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerSpec& spec) {
  return std::make_unique<AdamW>(spec);
}

}  // namespace smp
