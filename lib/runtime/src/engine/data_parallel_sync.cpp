#include "engine/data_parallel_sync.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "parameters/owned_part.h"
#include "smp/plan/base/check.h"

namespace smp::engine {
namespace {

constexpr const char* kWindow = "setup.window";
constexpr int64_t kChanged = -1;  // the current weights are not published yet

// This rank's part of a whole bucket.
at::Tensor part_of(const at::Tensor& whole, const comm::Communicator& group) {
  const int64_t size = whole.numel() / group.size();
  return whole.narrow(0, group.rank() * size, size);
}

// Nothing was started where the rank is alone.
void finish(comm::WorkPtr& work) {
  if (work == nullptr) return;
  work->wait();
  work.reset();
}

}  // namespace

DataParallelSync::DataParallelSync(parameters::FlatParameters& parameters,
                                   parallel::RankGroups& groups)
    : parameters_(parameters),
      of_others_{.data = groups.find(mesh::Axis::kData),
                 .shard = groups.find(mesh::Axis::kShard),
                 .replica = groups.find(mesh::Axis::kReplica),
                 .gradients = "data.gradients",
                 .weights = "shard.weights"},
      of_experts_{.data = groups.find(mesh::Axis::kExpertData),
                  .shard = groups.find(mesh::Axis::kExpertShard),
                  .replica = groups.find(mesh::Axis::kReplica),
                  .gradients = "expert.gradients",
                  .weights = "expert.weights"},
      shards_gradients_(parameters.layout().shards_gradients()),
      shards_weights_(parameters.layout().shards_weights()),
      reductions_(parameters.layout().buckets.size()),
      second_halves_(reductions_.size()),
      published_in_(reductions_.size(), kChanged),
      is_updated_(reductions_.size(), false),
      gathers_(reductions_.size()) {
  open_window(of_others_);
  open_window(of_experts_);
}

const layout::Bucket& DataParallelSync::bucket_at(int64_t bucket) const {
  return parameters_.layout().buckets.at(static_cast<size_t>(bucket));
}

void DataParallelSync::open_window(Peers& peers) const {
  if (peers.shard == nullptr || parameters_.weights_on_host()) return;
  const at::Tensor& weights = parameters_.weights();
  peers.window = peers.shard->open_window(weights.const_data_ptr(), weights.numel(),
                                          parameters_.dtype(), kWindow);
}

void DataParallelSync::changed(const Peers& peers) {
  for (size_t bucket = 0; bucket < published_in_.size(); ++bucket) {
    const bool is_of_them = &peers_of(static_cast<int64_t>(bucket)) == &peers;
    if (is_of_them) published_in_[bucket] = kChanged;
  }
}

// Publishes at once. Otherwise a faster peer would wait until this rank's next gather.
void DataParallelSync::updated(int64_t bucket) {
  with_experts(bucket, [&](int64_t one) { mark_updated(one); });
}

void DataParallelSync::mark_updated(int64_t bucket) {
  published_in_.at(static_cast<size_t>(bucket)) = kChanged;
  is_updated_[static_cast<size_t>(bucket)] = true;
  Peers& peers = peers_of(bucket);
  if (peers.window != nullptr) show_weights(peers);
}

void DataParallelSync::show_weights(Peers& peers) {
  peers.window->show();
  ++peers.shown;
  for (size_t bucket = 0; bucket < published_in_.size(); ++bucket) {
    const bool is_of_them = &peers_of(static_cast<int64_t>(bucket)) == &peers;
    if (is_of_them && published_in_[bucket] == kChanged) published_in_[bucket] = peers.shown;
  }
}

void DataParallelSync::start_reduce(int64_t bucket, bool is_first) {
  with_experts(bucket, [&](int64_t one) { start_reduce_of(one, is_first); });
}

void DataParallelSync::start_reduce_of(int64_t bucket, bool is_first) {
  const Peers& peers = peers_of(bucket);
  if (peers.shard == nullptr && peers.data == nullptr) {
    SMP_CHECK(bucket_at(bucket).is_of_experts);
    return;
  }
  const at::Tensor whole = parameters_.whole_gradients(bucket);
  const DType dtype = parameters_.gradient_dtype();
  void* begin = whole.mutable_data_ptr();
  comm::WorkPtr& work = reductions_.at(static_cast<size_t>(bucket));
  if (peers.shard == nullptr) {
    work = peers.data->all_reduce(begin, begin, whole.numel(), dtype, comm::ReduceOp::kSum,
                                  peers.gradients);
    return;
  }
  const at::Tensor out = shards_gradients_ && is_first ? parameters_.owned(bucket).gradients
                                                       : part_of(whole, *peers.shard);
  work = peers.shard->reduce_scatter(begin, out.mutable_data_ptr(), whole.numel(), dtype,
                                     comm::ReduceOp::kSum, peers.gradients);
}

void DataParallelSync::finish_reduce(int64_t bucket, bool is_first) {
  with_experts(bucket, [&](int64_t one) { finish_reduce_of(one, is_first); });
}

void DataParallelSync::finish_reduce_of(int64_t bucket, bool is_first) {
  finish(reductions_.at(static_cast<size_t>(bucket)));
  if (bucket_at(bucket).gradient_buffer < 0) return;
  const at::Tensor whole = parameters_.whole_gradients(bucket);
  if (!is_first) {
    parameters_.owned(bucket).gradients.add_(part_of(whole, *peers_of(bucket).shard));
  }
  whole.zero_();
}

void DataParallelSync::start_replicas(int64_t bucket) {
  with_experts(bucket, [&](int64_t one) { start_replicas_of(one); });
}

void DataParallelSync::start_replicas_of(int64_t bucket) {
  const Peers& peers = peers_of(bucket);
  SMP_CHECK(peers.replica != nullptr);
  const at::Tensor part = parameters_.owned(bucket).gradients;
  second_halves_.at(static_cast<size_t>(bucket)) = peers.replica->all_reduce(
      part.const_data_ptr(), part.mutable_data_ptr(), part.numel(), parameters_.gradient_dtype(),
      comm::ReduceOp::kSum, peers.gradients);
}

void DataParallelSync::finish_replicas(int64_t bucket) {
  with_experts(bucket, [&](int64_t one) { finish(second_halves_.at(static_cast<size_t>(one))); });
}

void DataParallelSync::start_gather(int64_t bucket) {
  with_experts(bucket, [&](int64_t one) { start_gather_of(one); });
}

void DataParallelSync::start_gather_of(int64_t bucket) {
  Peers& peers = peers_of(bucket);
  if (peers.shard == nullptr) {
    SMP_CHECK(bucket_at(bucket).is_of_experts);
    return;
  }
  const auto index = static_cast<size_t>(bucket);
  if (!shards_weights_) {
    if (!is_updated_.at(index)) return;
    is_updated_[index] = false;
  }
  at::Tensor part = parameters_.owned(bucket).weights;
  const at::Tensor whole = parameters_.whole_weights(bucket);
  comm::WorkPtr& work = gathers_.at(index);
  if (peers.window != nullptr) {
    if (published_in_[index] == kChanged) show_weights(peers);
    const layout::Bucket& of = bucket_at(bucket);
    work = peers.window->gather(shards_weights_ ? of.part_begin : of.begin,
                                shards_weights_ ? 0 : part.numel(), part.numel(),
                                published_in_[index], whole.mutable_data_ptr(), peers.weights);
    return;
  }
  if (parameters_.weights_on_host()) {  // copy the part to its place in the whole bucket
    part = part_of(whole, *peers.shard).copy_(part);
  }
  work = peers.shard->all_gather(part.const_data_ptr(), whole.mutable_data_ptr(), part.numel(),
                                 parameters_.dtype(), peers.weights);
}

void DataParallelSync::finish_gather(int64_t bucket) {
  with_experts(bucket, [&](int64_t one) { finish(gathers_.at(static_cast<size_t>(one))); });
}

void DataParallelSync::release_weights() {
  for (const comm::WorkPtr& work : gathers_) SMP_CHECK(work == nullptr);
  for (Peers* peers : {&of_others_, &of_experts_}) {
    if (peers->window != nullptr) peers->shard->barrier(kWindow)->wait();
    changed(*peers);
  }
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
