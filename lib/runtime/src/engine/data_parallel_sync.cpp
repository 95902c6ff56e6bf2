#include "engine/data_parallel_sync.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parameters/owned_part.h"
#include "smp/plan/base/check.h"

namespace smp::engine {
namespace {

constexpr const char* kGradients = "data.gradients";
constexpr const char* kWeights = "shard.weights";
constexpr const char* kWindow = "setup.window";
constexpr int64_t kChanged = -1;  // the current weights are not published yet

// This rank's part of a whole bucket.
at::Tensor part_of(const at::Tensor& whole, const comm::Communicator& group) {
  const int64_t size = whole.numel() / group.size();
  return whole.narrow(0, group.rank() * size, size);
}

void finish(comm::WorkPtr& work) {
  SMP_CHECK(work != nullptr);
  work->wait();
  work.reset();
}

}  // namespace

DataParallelSync::DataParallelSync(parameters::FlatParameters& parameters,
                                   parallel::RankGroups& groups)
    : parameters_(parameters),
      data_(groups.find(mesh::Axis::kData)),
      shard_(groups.find(mesh::Axis::kShard)),
      replica_(groups.find(mesh::Axis::kReplica)),
      shards_gradients_(parameters.layout().shards_gradients()),
      shards_weights_(parameters.layout().shards_weights()),
      reductions_(parameters.layout().buckets.size()),
      second_halves_(reductions_.size()),
      published_in_(reductions_.size(), kChanged),
      is_updated_(reductions_.size(), false),
      gathers_(reductions_.size()) {
  if (shard_ == nullptr || parameters.weights_on_host()) return;
  const at::Tensor& weights = parameters.weights();
  window_ =
      shard_->open_window(weights.const_data_ptr(), weights.numel(), parameters.dtype(), kWindow);
}

void DataParallelSync::changed(int64_t bucket) {
  if (bucket < 0) {
    std::fill(published_in_.begin(), published_in_.end(), kChanged);
  } else {
    published_in_.at(static_cast<size_t>(bucket)) = kChanged;
  }
}

// Publishes at once. Otherwise a faster peer would wait until this rank's next gather.
void DataParallelSync::updated(int64_t bucket) {
  changed(bucket);
  is_updated_[static_cast<size_t>(bucket)] = true;
  if (window_ != nullptr) show_weights();
}

void DataParallelSync::show_weights() {
  window_->show();
  std::replace(published_in_.begin(), published_in_.end(), kChanged, ++shown_);
}

void DataParallelSync::start_reduce(int64_t bucket, bool is_first) {
  const at::Tensor whole = parameters_.whole_gradients(bucket);
  const DType dtype = parameters_.gradient_dtype();
  void* begin = whole.mutable_data_ptr();
  comm::WorkPtr& work = reductions_.at(static_cast<size_t>(bucket));
  if (shard_ == nullptr) {
    SMP_CHECK(data_ != nullptr);
    work = data_->all_reduce(begin, begin, whole.numel(), dtype, comm::ReduceOp::kSum, kGradients);
    return;
  }
  const at::Tensor out =
      shards_gradients_ && is_first ? parameters_.owned(bucket).gradients : part_of(whole, *shard_);
  work = shard_->reduce_scatter(begin, out.mutable_data_ptr(), whole.numel(), dtype,
                                comm::ReduceOp::kSum, kGradients);
}

void DataParallelSync::finish_reduce(int64_t bucket, bool is_first) {
  finish(reductions_.at(static_cast<size_t>(bucket)));
  if (!shards_gradients_) return;
  const at::Tensor whole = parameters_.whole_gradients(bucket);
  if (!is_first) parameters_.owned(bucket).gradients.add_(part_of(whole, *shard_));
  whole.zero_();
}

void DataParallelSync::start_replicas(int64_t bucket) {
  SMP_CHECK(replica_ != nullptr);
  const at::Tensor part = parameters_.owned(bucket).gradients;
  second_halves_.at(static_cast<size_t>(bucket)) =
      replica_->all_reduce(part.const_data_ptr(), part.mutable_data_ptr(), part.numel(),
                           parameters_.gradient_dtype(), comm::ReduceOp::kSum, kGradients);
}

void DataParallelSync::finish_replicas(int64_t bucket) {
  finish(second_halves_.at(static_cast<size_t>(bucket)));
}

void DataParallelSync::start_gather(int64_t bucket) {
  SMP_CHECK(shard_ != nullptr);
  const auto index = static_cast<size_t>(bucket);
  if (!shards_weights_) {
    if (!is_updated_.at(index)) return;
    is_updated_[index] = false;
  }
  at::Tensor part = parameters_.owned(bucket).weights;
  const at::Tensor whole = parameters_.whole_weights(bucket);
  comm::WorkPtr& work = gathers_.at(index);
  if (window_ != nullptr) {
    if (published_in_[index] == kChanged) show_weights();
    const int64_t begin = parameters_.layout().buckets[index].begin;
    work = window_->gather(shards_weights_ ? begin / shard_->size() : begin,
                           shards_weights_ ? 0 : part.numel(), part.numel(), published_in_[index],
                           whole.mutable_data_ptr(), kWeights);
    return;
  }
  if (parameters_.weights_on_host()) {  // copy the part to its place in the whole bucket
    part = part_of(whole, *shard_).copy_(part);
  }
  work = shard_->all_gather(part.const_data_ptr(), whole.mutable_data_ptr(), part.numel(),
                            parameters_.dtype(), kWeights);
}

void DataParallelSync::finish_gather(int64_t bucket) {
  comm::WorkPtr& work = gathers_.at(static_cast<size_t>(bucket));
  if (work != nullptr) finish(work);
}

void DataParallelSync::release_weights() {
  for (const comm::WorkPtr& work : gathers_) SMP_CHECK(work == nullptr);
  if (window_ != nullptr) shard_->barrier(kWindow)->wait();
  changed(-1);
}

void DataParallelSync::abandon() {
  for (auto* works : {&reductions_, &second_halves_, &gathers_}) {
    for (comm::WorkPtr& work : *works) {
      try {
        if (work) work->wait();
      } catch (const std::exception&) {  // the error that ended the step is reported instead
      }
    }
  }
}

}  // namespace smp::engine
