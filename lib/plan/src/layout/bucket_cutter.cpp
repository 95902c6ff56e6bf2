#include "layout/bucket_cutter.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/model/persistent_tensors.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

int64_t div_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t round_up(int64_t value, int64_t multiple) { return div_up(value, multiple) * multiple; }

int64_t sum_of(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// The ends of a transformer, whose sizes differ much from a block's and which are never neighbours.
bool is_end(const model::LayerSpec& layer) {
  return layer.kind == model::LayerKind::kEmbedding || layer.kind == model::LayerKind::kHead;
}

// Elements at which a bucket is closed, and the limit for a bucket of several layers.
struct BucketLimits {
  int64_t enough = 1, most = std::numeric_limits<int64_t>::max() / 2;
};

// `sizes` are the layers' elements. Whole gradients are counted as they travel. Where gradients are
// sharded a bucket is reduced and gathered by microbatch and layer, so it is small; layers whose
// gradients are deferred are not complete together.
BucketLimits limits_of(const Plan& plan, const std::vector<model::LayerSpec>& layers,
                       const std::vector<int64_t>& sizes) {
  BucketLimits limits;
  const DType dtype = compute_dtype(plan);
  if (!shards_gradients(plan)) {
    const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t summed = bytes_of(wide(dtype));
    limits.enough =
        div_up(bucket_bytes_of(plan.job, state_share(plan).ranks(), all * summed), summed);
    return limits;
  }
  const int64_t element = bytes_of(dtype);
  int64_t largest = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    if (!is_end(layers[i])) largest = std::max(largest, sizes[i]);
  if (!schedule::defers_weight_gradients(chunks_of(plan).kind)) {
    const int64_t bytes =
        shard_bucket_bytes_of(plan.job, state_share(plan).shards, largest * element);
    limits.enough = div_up(bytes, element);
    if (!plan.job.parallel.shard_bucket_bytes && bytes > kShardBucketBytes) limits.most = largest;
  }
  const int64_t live = shards_weights(plan) ? plan.job.parallel.max_live_parameters : 0;
  if (live > 0) limits.most = std::min(limits.most, live);
  return limits;
}

// Assigns each bucket the buffer that holds it while it is whole, and returns the elements of the
// buffers. Blocks rotate through `rotating` buffers. Embedding and head share a buffer of their
// own, unless layers at the end use the embedding too. Experts have others, unless one rank has all
// of theirs.
std::vector<int64_t> shared_buffers(StageBuckets& layout, bool tied_here, bool shards_experts,
                                    int64_t rotating, int32_t Bucket::*buffer) {
  std::vector<int64_t> elements;
  const auto place = [&](int64_t& slot, Bucket& bucket) {
    if (slot < 0) {
      slot = static_cast<int64_t>(elements.size());
      elements.push_back(0);
    }
    bucket.*buffer = static_cast<int32_t>(slot);
    int64_t& size = elements[static_cast<size_t>(slot)];
    size = std::max(size, bucket.size());
  };
  int64_t ends = -1, tied_head = -1, block = 0;
  std::vector<int64_t> turns(static_cast<size_t>(rotating), -1), turns_of_experts = turns;
  for (size_t b = layout.scheduled; b-- > 0;) {
    Bucket& bucket = layout.buckets[b];
    if (static_cast<int64_t>(b) == layout.persistent_bucket) continue;
    const auto layer = std::find_if(
        layout.layers.begin(), layout.layers.end(),
        [&](const model::LayerSpec& candidate) { return candidate.index == bucket.first_layer; });
    SMP_CHECK(layer != layout.layers.end());
    if (!is_end(*layer)) {
      const auto turn = static_cast<size_t>(block++ % rotating);
      place(turns[turn], bucket);
      if (bucket.experts < 0 || !shards_experts) continue;
      place(turns_of_experts[turn], layout.buckets[static_cast<size_t>(bucket.experts)]);
    } else {
      place(layer->kind == model::LayerKind::kHead && tied_here ? tied_head : ends, bucket);
    }
  }
  if (layout.persistent_bucket >= 0) {
    int64_t own = -1;
    place(own, layout.buckets[static_cast<size_t>(layout.persistent_bucket)]);
  }
  return elements;
}

}  // namespace

bool is_of_shared_experts(const Plan& plan, const model::ParameterSpec& parameter) {
  return parameter.is_expert && shares_experts(plan);
}

model::Box box_of(const Plan& plan, const model::ParameterSpec& parameter, int64_t tensor_rank,
                  int64_t expert_part) {
  if (!is_of_shared_experts(plan, parameter)) {
    return model::tensor_box(plan.job.model, parameter, plan.degrees.tensor, tensor_rank);
  }
  return model::expert_box(parameter, plan.degrees.expert, expert_part);
}

std::vector<bool> persistent_of(const Plan& plan,
                                const std::vector<model::ParameterSpec>& tensors) {
  const int64_t threshold =
      shards_weights(plan) ? plan.job.parallel.param_persistence_threshold : 0;
  return model::persistent_tensors(tensors, threshold, kv_copies(plan) > 1, shares_experts(plan));
}

BucketCutter::Elements BucketCutter::elements_of(const model::LayerSpec& layer) {
  for (const auto& [known, elements] : known_) {
    if (model::have_equal_parameters(plan_.job.model, known, layer)) return elements;
  }
  const std::vector<model::ParameterSpec> tensors =
      model::parameters_of(plan_.job.model, layer, plan_.job.parallel.tensor_parallel);
  const std::vector<bool> persists = persistent_of(plan_, tensors);
  const auto size_on = [&](int64_t rank, const model::ParameterSpec& tensor) {
    return box_of(plan_, tensor, rank, 0).size();
  };
  Elements elements;
  elements.opens_with_persistent = !persists.empty() && persists.front();
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t& sum = persists[i]                               ? elements.persistent
                   : is_of_shared_experts(plan_, tensors[i]) ? elements.experts
                                                             : elements.others;
    sum += size_on(tensor_rank_, tensors[i]);
    if (!persists[i]) elements.others_of_first += size_on(0, tensors[i]);
  }
  known_.emplace_back(layer, elements);
  return elements;
}

// Index ranges [begin, end) of `layers`, in the order of reduction. A bucket is closed when it
// holds enough elements, before it exceeds the limit of gathered elements, and at the begin of a
// chunk. Sharded ends have buckets of their own. A small remainder in front joins the next bucket.
// A layer whose tensors all persist has no elements here, and is in a bucket only between other
// layers. Uneven cuts differ by about a row between tensor ranks. Tensor rank 0 has the most
// elements and decides for all, because the ranks of a stage share one schedule.
std::vector<std::pair<size_t, size_t>> BucketCutter::ranges_of(const StageLayers& stage) {
  const std::vector<model::LayerSpec>& layers = stage.layers;
  std::vector<bool> begins_chunk(layers.size(), false);
  size_t first = 0;
  for (const int64_t count : stage.chunk_layers) {
    begins_chunk[first] = true;
    first += static_cast<size_t>(count);
  }
  std::vector<int64_t> sizes;
  sizes.reserve(layers.size());
  for (const model::LayerSpec& layer : layers) sizes.push_back(elements_of(layer).others_of_first);
  const auto begins_bucket = [&](size_t i) {
    return begins_chunk[i] ||
           (shards_gradients(plan_) && (is_end(layers[i]) || is_end(layers[i - 1])));
  };
  const auto [enough, most] = limits_of(plan_, layers, sizes);
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t end = layers.size();
  int64_t elements = 0, of_neighbour = 0;
  for (size_t i = layers.size(); i-- > 0;) {
    elements += sizes[i];
    const bool is_full =
        elements >= enough || (elements > 0 && i > 0 && elements + sizes[i - 1] > most);
    if (!is_full && !begins_bucket(i)) continue;
    const bool is_rest = shards_gradients(plan_) && 2 * elements < enough;
    const bool has_neighbour = !ranges.empty() && ranges.back().first == end &&
                               !begins_bucket(end) && of_neighbour + elements <= most;
    if (is_rest && has_neighbour) {
      ranges.back().first = i;
      of_neighbour += elements;
    } else if (elements > 0) {
      ranges.emplace_back(i, end);
      of_neighbour = elements;
    }
    end = i;
    elements = 0;
  }
  for (auto& [begin, last] : ranges) {
    while (sizes[begin] == 0) ++begin;
    while (sizes[last - 1] == 0) --last;
  }
  return ranges;
}

// Persistent tensors are in front, in a bucket of their own. All others are in forward order, so
// their buckets are placed from the last to the first.
void BucketCutter::place(const std::vector<std::pair<size_t, size_t>>& ranges, StageBuckets& cut) {
  const int64_t shard = state_share(plan_).shards;
  int64_t persistent = 0;
  for (const model::LayerSpec& layer : cut.layers) persistent += elements_of(layer).persistent;
  int64_t offset = round_up(persistent, shard);
  cut.buckets.resize(ranges.size());
  if (persistent > 0) {
    cut.persistent_bucket = static_cast<int32_t>(ranges.size());
    cut.opens_with_persistent = elements_of(cut.layers.front()).opens_with_persistent;
    cut.buckets.push_back({0, offset, cut.layers.front().index, cut.layers.back().index, -1, -1});
  }
  for (size_t b = ranges.size(); b-- > 0;) {
    const auto [first, end] = ranges[b];
    Bucket& bucket = cut.buckets[b];
    bucket.begin = offset;
    bucket.first_layer = cut.layers[first].index;
    bucket.last_layer = cut.layers[end - 1].index;
    for (size_t i = first; i < end; ++i) offset += elements_of(cut.layers[i]).others;
    bucket.end = offset = round_up(offset, shard);
  }
  cut.elements = offset;
  cut.scheduled = cut.buckets.size();
}

// Behind all others, from the last bucket to the first as well.
void BucketCutter::place_experts(const std::vector<std::pair<size_t, size_t>>& ranges,
                                 StageBuckets& cut) {
  const int64_t shard = expert_share(plan_).shards;
  for (size_t b = ranges.size(); b-- > 0;) {
    const auto [first, end] = ranges[b];
    Bucket experts = cut.buckets[b];
    experts.experts = -1;
    experts.is_of_experts = true;
    experts.begin = experts.end = cut.elements;
    for (size_t i = first; i < end; ++i) experts.end += elements_of(cut.layers[i]).experts;
    if (experts.size() == 0) continue;
    cut.elements = experts.end = round_up(experts.end, shard);
    cut.buckets[b].experts = static_cast<int32_t>(cut.buckets.size());
    cut.buckets.push_back(experts);
  }
}

// In the order in which the buckets lie.
void BucketCutter::place_parts(StageBuckets& cut) const {
  std::vector<Bucket*> in_order;
  for (Bucket& bucket : cut.buckets) in_order.push_back(&bucket);
  std::ranges::sort(in_order, {}, &Bucket::begin);
  for (Bucket* bucket : in_order) {
    bucket->part_begin = cut.part_elements;
    const StateShare share = bucket->is_of_experts ? expert_share(plan_) : state_share(plan_);
    cut.part_elements += bucket->size() / share.shards;
  }
}

void BucketCutter::share_buffers(const std::vector<std::pair<size_t, size_t>>& ranges,
                                 StageBuckets& cut) const {
  const auto buckets = static_cast<int64_t>(ranges.size());
  const bool tied_here = model::reuses_embedding(plan_.job.model) && !tied_across_stages(plan_);
  const bool shards_experts = expert_share(plan_).shards > 1;
  if (layout::shards_gradients(plan_)) {
    // One is filled while another is reduced; deferred weight gradients keep all buffers filled.
    const bool defers = schedule::defers_weight_gradients(chunks_of(plan_).kind);
    cut.gradient_buffers =
        shared_buffers(cut, tied_here || defers, shards_experts,
                       defers ? buckets : kGradientBuffers, &Bucket::gradient_buffer);
  }
  if (!layout::shards_weights(plan_)) return;
  int64_t gathered = std::min(1 + plan_.job.parallel.prefetch_layers, buckets);
  const int64_t most = plan_.job.parallel.max_live_parameters;
  const int64_t lasting = cut.persistent_bucket >= 0
                              ? cut.buckets[static_cast<size_t>(cut.persistent_bucket)].size()
                              : 0;
  do {
    cut.weight_buffers =
        shared_buffers(cut, tied_here, shards_experts, gathered, &Bucket::weight_buffer);
  } while (most > 0 && sum_of(cut.weight_buffers) - lasting > most && --gathered > 0);
}

StageBuckets BucketCutter::cut(StageLayers stage) {
  const std::vector<std::pair<size_t, size_t>> ranges = ranges_of(stage);
  StageBuckets cut;
  static_cast<StageLayers&>(cut) = std::move(stage);
  place(ranges, cut);
  place_experts(ranges, cut);
  place_parts(cut);
  share_buffers(ranges, cut);
  return cut;
}

}  // namespace smp::layout
