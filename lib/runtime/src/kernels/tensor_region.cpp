#include "kernels/tensor_region.h"

#include <utility>

#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::kernels {
namespace {

void reduce_in_place(comm::Communicator& group, const at::Tensor& tensor, comm::ReduceOp op,
                     std::string_view label) {
  SMP_CHECK(tensor.is_contiguous());
  group
      .all_reduce(tensor.data_ptr(), tensor.data_ptr(), tensor.numel(),
                  ledger::dtype_of(tensor.scalar_type()), op, label)
      ->wait();
}

}  // namespace

at::Tensor TensorRegion::Sum::wait() {
  if (work_) work_->wait();
  work_.reset();
  addends_.reset();
  return std::move(result_);
}

at::Tensor TensorRegion::gathered(at::Tensor x, std::string_view label) const {
  return parts() == 1 ? x : gathered_parts(std::move(x), label);
}

at::Tensor TensorRegion::gathered_parts(at::Tensor x, std::string_view label) const {
  SMP_CHECK(x.is_contiguous());
  at::Tensor all = ledger::empty_tensor({x.size(0) * group_.degree, x.size(1)}, x.options());
  group_.communicator
      ->all_gather(x.data_ptr(), all.data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()),
                   label)
      ->wait();
  x.reset();
  return all;
}

TensorRegion::Sum TensorRegion::start_sum(at::Tensor y, std::string_view label) const {
  Sum sum;
  if (parts() == 1 && degree() == 1) {
    sum.result_ = std::move(y);
    return sum;
  }
  SMP_CHECK(y.is_contiguous());
  const DType dtype = ledger::dtype_of(y.scalar_type());
  comm::Communicator& group = *group_.communicator;
  if (parts() == 1) {
    sum.work_ =
        group.all_reduce(y.data_ptr(), y.data_ptr(), y.numel(), dtype, comm::ReduceOp::kSum, label);
    sum.result_ = std::move(y);
    return sum;
  }
  SMP_CHECK_EQ(y.size(0) % parts(), 0);
  sum.result_ = ledger::empty_tensor({y.size(0) / parts(), y.size(1)}, y.options());
  if (!shares_) {
    sum.result_.copy_(y.narrow(0, first_token(y.size(0)), sum.result_.size(0)));
    sum.addends_ = std::move(y);
    return sum;
  }
  sum.work_ = group.reduce_scatter(y.data_ptr(), sum.result_.data_ptr(), y.numel(), dtype,
                                   comm::ReduceOp::kSum, label);
  sum.addends_ = std::move(y);
  return sum;
}

at::Tensor TensorRegion::summed(at::Tensor y, std::string_view label) const {
  return start_sum(std::move(y), label).wait();
}

void TensorRegion::all_reduce(const at::Tensor& tensor, comm::ReduceOp op,
                              std::string_view label) const {
  if (degree() > 1) reduce_in_place(*group_.communicator, tensor, op, label);
}

void TensorRegion::sum_over_tokens(const at::Tensor& tensor, std::string_view label) const {
  if (parts() > 1) reduce_in_place(*group_.communicator, tensor, comm::ReduceOp::kSum, label);
}

}  // namespace smp::kernels
