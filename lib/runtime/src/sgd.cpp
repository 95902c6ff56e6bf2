#include "functions/device_functions.h"
#include "sgd_kernel.h"
#include "update_rule.h"

// SGD with momentum, dampening 0, and weight decay added to the gradient: the update of
// torch.optim.SGD.
namespace smp {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerSpec& spec) : spec_(spec) {}

  std::vector<const char*> states() const override {
    if (spec_.momentum == 0) return {};
    return {"momentum"};
  }

  void begin(int64_t, double learning_rate, double gradient_scale) override {
    kept_ = {gradient_scale, 0, spec_.momentum, learning_rate, spec_.nesterov};
    decayed_ = kept_;
    decayed_.decay = spec_.weight_decay;
  }

  void update(const DeviceFunctions& device, const UpdateRange<float>& range) const override {
    device.sgd_update(range.decays ? decayed_ : kept_, range);
  }
  void update(const DeviceFunctions& device, const UpdateRange<double>& range) const override {
    device.sgd_update(range.decays ? decayed_ : kept_, range);
  }

 private:
  OptimizerSpec spec_;
  SgdFactors kept_, decayed_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerSpec& spec) {
  return std::make_unique<Sgd>(spec);
}

}  // namespace smp
