#include "kernels/element_types.h"
#include "layers/operations/kernels_of.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/data/data_files.h"

namespace smp::layers {
namespace {

double count_correct(const kernels::SoftmaxStatistics& statistics, const at::Tensor& targets) {
  const int64_t rows = targets.numel();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  double correct = 0;
  kernels::with_element_type(statistics.sums, [&](auto zero) {
    const auto* target_logits = kernels::data_of<decltype(zero)>(statistics.sums) + rows;
    for (int64_t r = 0; r < rows; ++r) {
      correct += target[r] != data::kNoTarget && target_logits[r] == 0 ? 1 : 0;
    }
  });
  return correct;
}

}  // namespace

void run_softmax_loss(Frame& frame) {
  const auto& loss = frame.as<program::LossAttributes>();
  const at::Tensor& logits = frame.in(0);
  const at::Tensor targets = frame.in(1).narrow(0, loss.first_target, logits.size(0));
  const at::TensorOptions wide = kernels::wide_options(logits);
  kernels::SoftmaxStatistics statistics;
  statistics.maxima =
      frame.has_out(2) ? frame.make(2) : ledger::empty_tensor({logits.size(0)}, wide);
  statistics.sums =
      frame.has_out(3) ? frame.make(3) : ledger::empty_tensor({2, logits.size(0)}, wide);
  kernels::SoftmaxExchange exchange;
  if (loss.is_shared) {
    exchange = [&](const at::Tensor& part, comm::ReduceOp op) {
      frame.group()
          .communicator
          ->all_reduce(part.data_ptr(), part.data_ptr(), part.numel(),
                       ledger::dtype_of(part.scalar_type()), op, "tensor.loss")
          ->wait();
    };
  }
  const double mean = kernels::functions_of(logits).softmax_loss(
      logits, targets, loss.begin, statistics, exchange, frame.saves());
  if (loss.counts_correct && !frame.saves()) frame.correct = count_correct(statistics, targets);
  statistics = {};
  if (frame.has_out(1)) frame.set_over(1, logits);
  frame.set(0, ledger::full_tensor({}, mean, wide.device(at::kCPU)));
}

void run_softmax_gradient(Frame& frame) {
  const at::Tensor& logits = frame.in(0);
  const auto& loss = frame.as<program::LossAttributes>();
  kernels::functions_of(logits).softmax_gradient(
      logits, frame.in(1).narrow(0, loss.first_target, logits.size(0)), loss.begin,
      {frame.in(2), frame.in(3)}, frame.factor(1, 4));
  frame.set_over(0, logits);
}

}  // namespace smp::layers
