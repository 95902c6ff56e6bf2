#include <numeric>
#include <vector>

#include "layers/operations/for_each_expert.h"
#include "layers/operations/kernels_of.h"
#include "ledger/torch_dtype.h"
#include "smp/comm/all_to_all_v.h"
#include "smp/plan/base/check.h"

// Rows that go to the ranks of their experts, and back.
namespace smp::layers {
namespace {

using program::RowExchangeAttributes;

comm::Communicator& group_of(const Frame& frame) {
  SMP_CHECK(frame.experts().group != nullptr);
  return *frame.experts().group;
}

// The rows that this rank sends to each rank, by the ends of all experts' rows.
std::vector<int64_t> rows_to_ranks(const at::Tensor& ends, int64_t degree) {
  const auto* end = ends.const_data_ptr<int32_t>();
  const int64_t experts = ends.numel() / degree;
  std::vector<int64_t> rows;
  int64_t before = 0;
  for (int64_t rank = 0; rank < degree; ++rank) {
    const int64_t last = end[(rank + 1) * experts - 1];
    rows.push_back(last - before);
    before = last;
  }
  return rows;
}

// Those that come from each, by the counts of each rank and expert.
std::vector<int64_t> rows_from_ranks(const at::Tensor& counts) {
  const auto* count = counts.const_data_ptr<int32_t>();
  const int64_t experts = counts.size(1);
  std::vector<int64_t> rows;
  for (int64_t rank = 0; rank < counts.size(0); ++rank) {
    rows.push_back(
        std::accumulate(count + rank * experts, count + (rank + 1) * experts, int64_t{0}));
  }
  return rows;
}

void exchange(Frame& frame, bool to_experts) {
  const auto& attributes = frame.as<RowExchangeAttributes>();
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  SMP_CHECK(x.is_contiguous());
  std::vector<int64_t> sent = rows_to_ranks(frame.in(1).to(at::kCPU), attributes.degree);
  std::vector<int64_t> come = rows_from_ranks(frame.in(2).to(at::kCPU));
  if (!to_experts) sent.swap(come);
  const int64_t cols = x.numel() / x.size(0);
  for (auto* counts : {&sent, &come}) {
    for (int64_t& count : *counts) count *= cols;
  }
  comm::WorkPtr work =
      comm::all_to_all_v(group_of(frame), x.const_data_ptr(), sent, y.mutable_data_ptr(), come,
                         ledger::dtype_of(x.scalar_type()), attributes.label);
  if (attributes.waits) {
    work->wait();
  } else {
    frame.start(frame.operation().out(0), std::move(work));
  }
}

// Copies the rows of each rank for each expert between their two orders.
void group_rows(Frame& frame, bool by_expert) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  const at::Tensor counts = frame.in(1).to(at::kCPU);
  const auto* count = counts.const_data_ptr<int32_t>();
  const int64_t ranks = counts.size(0), experts = counts.size(1);
  std::vector<int64_t> begin_by_rank;
  int64_t begin = 0;
  for (int64_t i = 0; i < ranks * experts; ++i) {
    begin_by_rank.push_back(begin);
    begin += count[i];
  }
  int64_t at = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t i = rank * experts + expert, rows = count[i];
      if (rows == 0) continue;
      const int64_t other = begin_by_rank[static_cast<size_t>(i)];
      y.narrow(0, by_expert ? at : other, rows).copy_(x.narrow(0, by_expert ? other : at, rows));
      at += rows;
    }
  }
}

at::Tensor as_column(const at::Tensor& x) { return x.view({-1, 1}); }

}  // namespace

void run_expert_counts(Frame& frame) {
  const auto& attributes = frame.as<RowExchangeAttributes>();
  const at::Tensor ends = frame.in(0).to(at::kCPU);
  const auto* end = ends.const_data_ptr<int32_t>();
  std::vector<int32_t> sent(end, end + ends.numel());
  std::adjacent_difference(sent.begin(), sent.end(), sent.begin());
  const at::Tensor& counts = frame.make(0);
  const int64_t experts = counts.size(1);
  auto* come = counts.mutable_data_ptr<int32_t>();
  group_of(frame).all_to_all(sent.data(), come, experts, DType::kI32, attributes.label)->wait();
  const at::Tensor& ends_here = frame.make(1);
  auto* here = ends_here.mutable_data_ptr<int32_t>();
  int32_t sum = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t rank = 0; rank < counts.size(0); ++rank) sum += come[rank * experts + expert];
    here[expert] = sum;
  }
}

void run_take_weights(Frame& frame) {
  const at::Tensor& weights = frame.in(0);
  const at::Tensor& y = frame.make(0);
  kernels::functions_of(weights).experts().dispatch(as_column(weights), frame.in(1),
                                                    used_rows(frame.in(2)), 1, as_column(y));
}

void run_put_weights(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  kernels::functions_of(x).experts().combine(as_column(x), as_column(frame.in(1)), as_column(y));
}

void run_send_rows(Frame& frame) { exchange(frame, true); }
void run_return_rows(Frame& frame) { exchange(frame, false); }
void run_rows_by_expert(Frame& frame) { group_rows(frame, true); }
void run_rows_by_rank(Frame& frame) { group_rows(frame, false); }

}  // namespace smp::layers
