#include "kernels/sixteen_bit_copy.h"
#include "optim/update_rule.h"

// The bias of a router: one step down for an expert with more tokens than an even share, one step
// up for one with fewer (Wang et al. 2024, arXiv:2408.15664). Its gradient is that excess.
namespace smp::optim {
namespace {

class LoadRule final : public UpdateRule {
 public:
  explicit LoadRule(double rate) : rate_(rate) {}

  std::vector<const char*> states() const override { return {}; }
  void begin(int64_t, double, double) override {}

  void update(const kernels::DeviceFunctions&,
              const kernels::UpdateRange<float>& range) const override {
    kernels::with_copy(range, [&](const auto& put) { move(range, put); });
  }
  void update(const kernels::DeviceFunctions&,
              const kernels::UpdateRange<double>& range) const override {
    move(range, [](int64_t, double) {});
  }

 private:
  template <typename T, typename Put>
  void move(const kernels::UpdateRange<T>& range, const Put& put) const {
    if (range.is_held_back()) return;
    for (int64_t i = 0; i < range.count; ++i) {
      const T excess = range.gradients[i];
      if (excess != 0) range.weights[i] += static_cast<T>(excess > 0 ? -rate_ : rate_);
      put(i, range.weights[i]);
    }
  }

  const double rate_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_load_rule(double rate) { return std::make_unique<LoadRule>(rate); }

}  // namespace smp::optim
