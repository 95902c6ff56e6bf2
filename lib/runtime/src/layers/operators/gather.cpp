#include "layers/operators/operator.h"
#include "ledger/tensor_factories.h"

namespace smp::layers {
namespace {

// Flat features of all ranks side by side. Backward takes this rank's: the gradient is the same on
// all of them.
class Gather final : public Operator {
 public:
  Gather(const model::ChannelCut& cut, const kernels::TensorRegion& region)
      : cut_(cut), region_(region) {}

  // The ranks' parts may differ by a channel, and are sent as large as the first one's.
  at::Tensor forward(const at::Tensor& x, bool /*may_overwrite*/,
                     const kernels::CallContext& /*call*/, Saved& /*saved*/) const override {
    const int64_t batch = x.size(0), largest = cut_.size(place(0));
    const at::Tensor parts = region_.gathered_parts(padded(x, largest), "tensor.forward");
    at::Tensor y = ledger::empty_tensor({batch, cut_.channels * cut_.unit}, parts.options());
    for (int64_t rank = 0; rank < region_.degree(); ++rank) {
      const int64_t size = cut_.size(place(rank));
      y.narrow(1, cut_.begin(place(rank)), size)
          .copy_(parts.narrow(0, rank * batch, batch).narrow(1, 0, size));
    }
    return y;
  }
  size_t kept() const override { return 0; }

  at::Tensor backward(Saved /*kept*/, at::Tensor dy, bool /*wanted*/,
                      const kernels::CallContext& /*call*/,
                      DeferredWeightGradients* /*deferred*/) const override {
    const model::TensorPlace own = place(region_.rank());
    at::Tensor dx = ledger::empty_tensor({dy.size(0), cut_.size(own)}, dy.options());
    dx.copy_(dy.narrow(1, cut_.begin(own), cut_.size(own)));
    return dx;
  }

 private:
  static at::Tensor padded(const at::Tensor& x, int64_t columns) {
    if (x.size(1) == columns) return x;
    at::Tensor wider = ledger::zero_tensor({x.size(0), columns}, x.options());
    wider.narrow(1, 0, x.size(1)).copy_(x);
    return wider;
  }
  model::TensorPlace place(int64_t rank) const { return {region_.degree(), rank}; }

  const model::ChannelCut cut_;
  const kernels::TensorRegion region_;
};

}  // namespace

OperatorPtr make_gather(const model::ChannelCut& cut, const kernels::TensorRegion& region) {
  return std::make_unique<Gather>(cut, region);
}

}  // namespace smp::layers
