#include "bucket_traffic.h"

#include <ATen/core/Tensor.h>

#include "smp/plan/check.h"

namespace smp {

BucketTraffic::BucketTraffic(FlatParameters& parameters, RankGroups& groups)
    : parameters_(parameters),
      data_(groups.find(Axis::kData)),
      shard_(groups.find(Axis::kShard)),
      replica_(groups.find(Axis::kReplica)),
      reductions_(parameters.layout().buckets.size()),
      gathers_(parameters.layout().buckets.size()) {}

void BucketTraffic::start_reduce(int64_t bucket) {
  const Bucket& range = parameters_.layout().buckets.at(static_cast<size_t>(bucket));
  const DType dtype = parameters_.gradient_dtype();
  char* begin = static_cast<char*>(parameters_.gradients().mutable_data_ptr()) +
                range.begin * bytes_of(dtype);
  WorkPtr& work = reductions_.at(static_cast<size_t>(bucket));
  if (shard_ == nullptr) {
    SMP_CHECK(data_ != nullptr);
    work = data_->all_reduce(begin, begin, range.size(), dtype, ReduceOp::kSum, "data.gradients");
    return;
  }
  work = shard_->reduce_scatter(begin, parameters_.owned(bucket).gradients.mutable_data_ptr(),
                                range.size(), dtype, ReduceOp::kSum, "data.gradients");
  if (replica_ != nullptr) first_halves_.push_back(bucket);
}

void BucketTraffic::poll() {
  while (!first_halves_.empty() &&
         reductions_[static_cast<size_t>(first_halves_.front())]->done()) {
    finish_first_half();
  }
}

void BucketTraffic::finish_first_half() {
  const int64_t bucket = first_halves_.front();
  first_halves_.pop_front();
  WorkPtr& work = reductions_[static_cast<size_t>(bucket)];
  work->wait();
  const at::Tensor part = parameters_.owned(bucket).gradients;
  work = replica_->all_reduce(part.const_data_ptr(), part.mutable_data_ptr(), part.numel(),
                              parameters_.gradient_dtype(), ReduceOp::kSum, "data.gradients");
}

void BucketTraffic::wait_reduce(int64_t bucket) {
  while (!first_halves_.empty()) finish_first_half();
  WorkPtr& work = reductions_.at(static_cast<size_t>(bucket));
  SMP_CHECK(work != nullptr);
  work->wait();
  work.reset();
}

void BucketTraffic::start_gather(int64_t bucket) {
  SMP_CHECK(shard_ != nullptr);
  const Bucket& range = parameters_.layout().buckets.at(static_cast<size_t>(bucket));
  char* weights = static_cast<char*>(parameters_.weights().mutable_data_ptr());
  const at::Tensor part = parameters_.owned(bucket).weights;
  gathers_.at(static_cast<size_t>(bucket)) = shard_->all_gather(
      part.const_data_ptr(), weights + range.begin * bytes_of(parameters_.dtype()), part.numel(),
      parameters_.dtype(), "shard.weights");
}

void BucketTraffic::wait_gather(int64_t bucket) {
  WorkPtr& work = gathers_.at(static_cast<size_t>(bucket));
  SMP_CHECK(work != nullptr);
  work->wait();
  work.reset();
}

void BucketTraffic::abandon() {
  for (auto* works : {&reductions_, &gathers_}) {
    for (WorkPtr& work : *works) {
      try {
        if (work) work->wait();
      } catch (const CommError&) {  // the failure that ended it is reported already
      }
    }
  }
}

}  // namespace smp
