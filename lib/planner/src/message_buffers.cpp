#include "message_buffers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "engine_bytes.h"
#include "link_model.h"
#include "rank_order.h"
#include "smp/plan/bucket_size.h"
#include "smp/plan/schedule.h"
#include "state_bytes.h"

namespace smp {
namespace {

using Messages = std::vector<double>;  // bytes of each that is under way at one time

// What our engine has under way at most of whole buckets (BucketTraffic of lib/runtime).
constexpr double kMostReductions = 4, kMostGathers = 2;
// Blocks' buffers for gradients that are sharded (share_buffers() of lib/plan).
constexpr double kGradientBuffers = 2;

double elements_of(const LayerBytes& layers, const StageHolds& holds) {
  return block_parameters(layers, holds) + (holds.embedding ? layers.embedding_parameters : 0) +
         (holds.head ? layers.head_parameters : 0);
}

// Neighbouring buckets of a stage: of blocks, and with them the larger end of the model. A bucket
// is closed as soon as it has `enough` elements; sharded ends have buckets of their own.
class Buckets {
 public:
  Buckets(const LayerBytes& layers, const StageHolds& holds, double enough, bool ends_apart) {
    const double block = layers.largest_block_parameters(), blocks = holds.blocks.all();
    all_ = elements_of(layers, holds);
    end_ = std::max(holds.embedding ? layers.embedding_parameters : 0,
                    holds.head ? layers.head_parameters : 0);
    of_blocks_ = std::min(blocks, std::max(1.0, std::ceil(enough / block))) * block;
    if (ends_apart || end_ >= enough) return;
    of_blocks_ += end_;  // the last bucket's, which is no longer than that
    end_ = 0;
  }

  // `most` of them, each element of so many bytes.
  void add(Messages& messages, double most, double bytes) const {
    double left = all_;
    const auto add = [&](double elements) {
      elements = std::min(elements, left);
      left -= elements;
      if (elements > 0) messages.push_back(elements * bytes);
    };
    add(end_);
    for (double i = end_ > 0 ? 1 : 0; i < most; ++i) add(of_blocks_);
  }

 private:
  double all_ = 0, of_blocks_ = 0, end_ = 0;
};

// A later message uses the buffer of an earlier one, or where none is long enough a longer one
// takes the place of the longest: there are as many as were ever under way at once.
class Pool {
 public:
  void hold(Messages now) {
    std::sort(now.begin(), now.end(), std::greater<>());
    buffers_.resize(std::max(buffers_.size(), now.size()));
    for (size_t i = 0; i < now.size(); ++i) buffers_[i] = std::max(buffers_[i], now[i]);
  }
  double bytes() const { return std::accumulate(buffers_.begin(), buffers_.end(), 0.0); }

 private:
  Messages buffers_;  // the longest first
};

bool by_host(const JobSpec& job, Axis axis) {
  return exchange_of(job, axis) == CollectiveBackend::kHost;
}

// Of tensor groups and between stages.
void add_activations(Messages& messages, const JobSpec& job, const LayoutChoice& choice,
                     const StageHolds& holds) {
  const double tokens = static_cast<double>(choice.micro_batch) *
                        static_cast<double>(job.training.sequence_length) / choice.context;
  const double hidden =
      tokens * static_cast<double>(job.model.hidden_size) * element_bytes(choice.precision);
  const int tensors = job.model.decoder_layers > 0 ? 2 : 1;  // and what a T5's encoder gives
  const auto add = [&](int count, double bytes) {
    messages.insert(messages.end(), static_cast<size_t>(count * tensors), bytes);
  };
  if (choice.tensor > 1 && by_host(job, Axis::kTensor)) add(1, hidden);
  if (choice.pipeline == 1) return;
  // One each way, forward and backward, for each neighbour.
  const bool one_chunk = choice.virtual_stages == 1;
  const int neighbours = 2 - (one_chunk && holds.embedding) - (one_chunk && holds.head);
  add(2 * neighbours, choice.sequence_parallel ? hidden / choice.tensor : hidden);
}

Buckets buckets_of(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                   const StageHolds& holds, double gradient) {
  if (choice.shard > 1 && choice.sharding >= Sharding::kGradients) {
    const double element = element_bytes(choice.precision);
    const auto largest = static_cast<int64_t>(layers.largest_block_parameters() * element);
    const auto bytes = static_cast<double>(shard_bucket_bytes_of(job, choice.shard, largest));
    return {layers, holds, bytes / element, true};
  }
  const auto all = static_cast<int64_t>(elements_of(layers, holds) * gradient);
  const auto bytes = static_cast<double>(bucket_bytes_of(job, choice.data(), all));
  return {layers, holds, bytes / gradient, false};
}

}  // namespace

double message_buffers(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                       const StageHolds& holds) {
  if (job.cluster.device == DeviceKind::kCpu || !is_of_engine(job) || choice.world() == 1) return 0;
  const double element = element_bytes(choice.precision), gradient = std::max(4.0, element);
  const Buckets buckets = buckets_of(job, choice, layers, holds, gradient);
  const bool rotates =
      choice.sharding >= Sharding::kGradients && !puts_weights_off(choice.schedule);
  const double reductions = rotates ? kGradientBuffers + 1 : kMostReductions;  // and of an end
  Messages while_computing, after_update;
  add_activations(while_computing, job, choice, holds);
  if (choice.shard > 1 && by_host(job, Axis::kShard)) {
    buckets.add(while_computing, reductions, gradient);
    const auto ahead = static_cast<double>(blocks_ahead(job, layers));
    if (choice.sharding == Sharding::kParameters)
      buckets.add(while_computing, 1 + ahead, element);
    else
      buckets.add(after_update, kMostGathers, element);
  } else if (choice.data() > 1 && by_host(job, choice.shard > 1 ? Axis::kReplica : Axis::kData)) {
    buckets.add(while_computing, reductions, gradient / choice.shard);
  }
  Pool pool;
  pool.hold(std::move(while_computing));
  pool.hold(std::move(after_update));
  if (job.model.tied_embeddings && holds.embedding != holds.head)
    pool.hold({(holds.head ? layers.head_parameters : layers.embedding_parameters) * gradient});
  return pool.bytes() + group_memory(choice, job);
}

}  // namespace smp
