#include "memory/message_buffers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/rank_order.h"
#include "cost/state_bytes.h"
#include "links/link_model.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/bucket_size.h"

namespace smp::memory {
namespace {

// Those that are under way at one time.
struct Messages {
  double bytes = 0, longest = 0;

  void add(double each, int count = 1) {
    bytes += count * each;
    longest = std::max(longest, each);
  }
};

double elements_of(const cost::LayerBytes& layers, const cost::StageHolds& holds) {
  return cost::block_parameters(layers, holds) +
         (holds.embedding ? layers.embedding().parameters : 0) +
         (holds.head ? layers.head().parameters : 0);
}

// Elements of neighbouring buckets of a stage: of blocks, and with them the larger end of the model
// if it is a bucket of its own.
struct Buckets {
  double all = 0, of_blocks = 0, end = 0;

  // `most` of them, each element of so many bytes.
  void add_to(Messages& messages, int64_t most, double bytes) const {
    double left = all;
    const auto add = [&](double elements) {
      messages.add(std::min(elements, left) * bytes);
      left -= std::min(elements, left);
    };
    add(end);
    for (int64_t i = end > 0 ? 1 : 0; i < most && left > 0; ++i) add(of_blocks);
  }
};

bool by_host(const JobSpec& job, mesh::Axis axis) {
  return links::exchange_of(job, axis) == links::CollectiveBackend::kHost;
}

// Of tensor groups and between stages.
void add_activations(Messages& messages, const JobSpec& job, const choice::LayoutChoice& choice,
                     const cost::StageHolds& holds) {
  const double tokens = static_cast<double>(choice.micro_batch) *
                        static_cast<double>(job.training.sequence_length) / choice.context;
  const double hidden =
      tokens * static_cast<double>(job.model.hidden_size) * cost::element_bytes(choice.precision);
  const int tensors = job.model.decoder_layers > 0 ? 2 : 1;  // and what a T5's encoder gives
  if (choice.tensor > 1 && by_host(job, mesh::Axis::kTensor)) messages.add(hidden, tensors);
  if (choice.pipeline == 1) return;
  // One each way, forward and backward, for each neighbour.
  const bool one_chunk = choice.virtual_stages == 1;
  const int neighbours = 2 - (one_chunk && holds.embedding) - (one_chunk && holds.head);
  messages.add(choice.sequence_parallel ? hidden / choice.tensor : hidden,
               2 * neighbours * tensors);
}

Buckets buckets_of(const JobSpec& job, const choice::LayoutChoice& choice,
                   const cost::LayerBytes& layers, const cost::StageHolds& holds, double gradient) {
  const double all = elements_of(layers, holds), block = layers.largest_block_parameters;
  const double blocks = holds.all_blocks();
  const double end = std::max(holds.embedding ? layers.embedding().parameters : 0,
                              holds.head ? layers.head().parameters : 0);
  const cost::StateRanks states = cost::state_ranks(job, choice);
  if (states.shards > 1 && choice.sharding >= Sharding::kGradients)
    return {all, std::min(blocks, blocks_of_bucket(job, choice, block)) * block, end};
  const auto bytes = bucket_bytes_of(job, states.all(), static_cast<int64_t>(all * gradient));
  const double enough = static_cast<double>(bytes) / gradient;  // a bucket is closed
  const double of_blocks = std::min(blocks, std::max(1.0, std::ceil(enough / block))) * block;
  if (end < enough) return {all, of_blocks + end, 0};  // it goes with its neighbours
  return {all, of_blocks, end};
}

}  // namespace

double message_buffers(const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const cost::StageHolds& holds) {
  if (job.cluster.device == DeviceKind::kCpu || !cost::is_of_engine(job) || choice.world() == 1)
    return 0;
  const double element = cost::element_bytes(choice.precision), gradient = std::max(4.0, element);
  const Buckets buckets = buckets_of(job, choice, layers, holds, gradient);
  const bool rotates = choice.sharding >= Sharding::kGradients &&
                       !schedule::defers_weight_gradients(choice.schedule);
  const int reductions =
      rotates ? kGradientBuffers + 1 : kMostReductions;  // 1: an end of the model
  Messages messages;
  add_activations(messages, job, choice, holds);
  // Gathers of updated weights are fewer, and shorter, than the reductions whose buffers they use.
  const cost::StateRanks states = cost::state_ranks(job, choice);
  if (states.shards > 1 && by_host(job, mesh::Axis::kShard)) {
    buckets.add_to(messages, reductions, gradient);
    if (choice.sharding == Sharding::kParameters)
      buckets.add_to(messages, 1 + blocks_ahead(job, layers), element);
  } else if (states.replicas > 1 &&
             by_host(job, states.shards > 1 ? mesh::Axis::kReplica : mesh::Axis::kData)) {
    buckets.add_to(messages, reductions, gradient / static_cast<double>(states.shards));
  }
  // Alone: it takes the longest buffer, or a longer one in its place.
  const bool sends_tied = model::reuses_embedding(job.model) && holds.embedding != holds.head;
  const double tied = !sends_tied  ? 0
                      : holds.head ? cost::tied_copy(job, choice)
                                   : layers.embedding().parameters;
  return messages.bytes + std::max(0.0, tied * gradient - messages.longest);
}

}  // namespace smp::memory
