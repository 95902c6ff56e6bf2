#include "reduction.h"

#include <ATen/ops/view_as_real.h>

namespace smp::pytorch {

comm::ReduceOp reduction_of(const char* call, const c10d::ReduceOp& op, at::ScalarType type) {
  using Torch = c10d::ReduceOp;
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
    case at::kInt:
    case at::kLong:
    case at::kByte:
    case at::kChar:
    case at::kShort: break;
    case at::kBool:
      if (op.op_ == Torch::SUM || op.op_ == Torch::MAX) return comm::ReduceOp::kMax;
      if (op.op_ == Torch::PRODUCT || op.op_ == Torch::MIN) return comm::ReduceOp::kMin;
      TORCH_CHECK(false, "smp: ", call, " of Bool supports sum, max, product and min only");
    case at::kComplexFloat:
    case at::kComplexDouble:
      TORCH_CHECK(op.op_ == Torch::SUM || op.op_ == Torch::AVG, "smp: ", call, " of ", type,
                  " supports sum and average only");
      break;
    default: TORCH_CHECK(false, "smp: ", call, " does not reduce tensors of ", type);
  }
  switch (op.op_) {
    case Torch::SUM: return comm::ReduceOp::kSum;
    case Torch::AVG: return comm::ReduceOp::kAverage;
    case Torch::PRODUCT: return comm::ReduceOp::kProduct;
    case Torch::MIN: return comm::ReduceOp::kMin;
    case Torch::MAX: return comm::ReduceOp::kMax;
    default:
      TORCH_CHECK(false, "smp: ", call, " supports sum, average, product, min and max, ",
                  "but not bitwise reductions and scaled sums");
  }
}

Elements reduced(const char* call, const at::Tensor& tensor,
                 std::vector<std::function<void()>>* after) {
  switch (tensor.scalar_type()) {
    case at::kComplexFloat:
    case at::kComplexDouble:
      return moved(call, at::view_as_real(moved(call, tensor, after).flat), nullptr);
    case at::kBool: return moved(call, tensor.detach().view(at::kByte), after);
    case at::kChar:
    case at::kShort: {
      Elements elements = moved(call, tensor.detach().to(at::kInt), nullptr);
      if (after != nullptr)
        after->push_back([to = tensor.detach(), from = elements.flat] { to.copy_(from); });
      return elements;
    }
    default: return moved(call, tensor, after);
  }
}

}  // namespace smp::pytorch
