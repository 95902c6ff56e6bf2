#include "smp/plan/layout/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/persistent_tensors.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {
namespace {

int64_t div_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The order of passes does not matter here.
schedule::ScheduleShape chunks_of(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  return {.kind = parallel.pipeline.value_or(PipelineKind::kInterleaved),
          .stages = plan.degrees.pipeline,
          .virtual_stages = parallel.virtual_pipeline_degree.value_or(1)};
}

std::vector<model::ParameterSpec> specs_of(const Plan& plan, const model::LayerSpec& layer) {
  return model::parameters_of(plan.job.model, layer, plan.job.parallel.tensor_parallel);
}

std::vector<bool> persistent_of(const Plan& plan,
                                const std::vector<model::ParameterSpec>& tensors) {
  const int64_t threshold =
      shards_weights(plan) ? plan.job.parallel.param_persistence_threshold : 0;
  return model::persistent_tensors(tensors, threshold, kv_copies(plan) > 1);
}

// Elements of a layer's persistent tensors, or of its other tensors.
int64_t elements_of(const Plan& plan, const model::LayerSpec& layer, int64_t tensor_rank,
                    bool persistent) {
  const std::vector<model::ParameterSpec> tensors = specs_of(plan, layer);
  const std::vector<bool> persists = persistent_of(plan, tensors);
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (persists[i] != persistent) continue;
    elements +=
        model::tensor_box(plan.job.model, tensors[i], plan.degrees.tensor, tensor_rank).size();
  }
  return elements;
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
    limits.enough = div_up(
        bucket_bytes_of(plan.job, plan.degrees.shard * plan.degrees.replica, all * summed), summed);
    return limits;
  }
  const int64_t element = bytes_of(dtype);
  int64_t largest = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    if (!is_end(layers[i])) largest = std::max(largest, sizes[i]);
  if (!schedule::defers_weight_gradients(chunks_of(plan).kind)) {
    const int64_t bytes = shard_bucket_bytes_of(plan.job, plan.degrees.shard, largest * element);
    limits.enough = div_up(bytes, element);
    if (!plan.job.parallel.shard_bucket_bytes && bytes > kShardBucketBytes) limits.most = largest;
  }
  const int64_t live = shards_weights(plan) ? plan.job.parallel.max_live_parameters : 0;
  if (live > 0) limits.most = std::min(limits.most, live);
  return limits;
}

// Index ranges [begin, end) of `layers`, in the order of reduction. A bucket is closed when it
// holds enough elements, before it exceeds the limit of gathered elements, and at the begin of a
// chunk. Sharded ends have buckets of their own. A small remainder in front joins the next bucket.
// A layer whose tensors all persist has no elements here, and is in a bucket only between other
// layers. Uneven cuts differ by about a row between tensor ranks. Tensor rank 0 has the most
// elements and decides for all, because the ranks of a stage share one schedule.
std::vector<std::pair<size_t, size_t>> bucket_ranges(const Plan& plan,
                                                     const std::vector<model::LayerSpec>& layers,
                                                     const std::vector<int64_t>& chunk_layers) {
  std::vector<bool> begins_chunk(layers.size(), false);
  size_t first = 0;
  for (const int64_t count : chunk_layers) {
    begins_chunk[first] = true;
    first += static_cast<size_t>(count);
  }
  std::vector<int64_t> sizes;
  for (const model::LayerSpec& layer : layers) sizes.push_back(elements_of(plan, layer, 0, false));
  const auto begins_bucket = [&](size_t i) {
    return begins_chunk[i] ||
           (shards_gradients(plan) && (is_end(layers[i]) || is_end(layers[i - 1])));
  };
  const auto [enough, most] = limits_of(plan, layers, sizes);
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t end = layers.size();
  int64_t elements = 0, of_neighbour = 0;
  for (size_t i = layers.size(); i-- > 0;) {
    elements += sizes[i];
    const bool is_full =
        elements >= enough || (elements > 0 && i > 0 && elements + sizes[i - 1] > most);
    if (!is_full && !begins_bucket(i)) continue;
    const bool is_rest = shards_gradients(plan) && 2 * elements < enough;
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

int64_t copies_of(const Plan& plan, const model::ParameterSpec& parameter) {
  switch (parameter.split) {
    case model::TensorSplit::kReplicated: return plan.degrees.tensor;
    case model::TensorSplit::kKvHeads: return kv_copies(plan);
    case model::TensorSplit::kRows:
    case model::TensorSplit::kColumns: return 1;
  }
  check_failed(__FILE__, __LINE__, "unknown tensor split");
}

PlacedParameter place(const Plan& plan, const mesh::Coord& coord, const model::ParameterSpec& spec,
                      int64_t layer, int64_t offset) {
  PlacedParameter placed;
  placed.spec = spec;
  placed.box = model::tensor_box(plan.job.model, spec, plan.degrees.tensor, coord.tensor);
  placed.layer = layer;
  placed.offset = offset;
  placed.copies = copies_of(plan, spec);
  placed.counts = coord.tensor % placed.copies == 0;
  return placed;
}

// Assigns each bucket the buffer that holds it while it is whole, and returns the elements of the
// buffers. Blocks rotate through `rotating` buffers. Embedding and head share a buffer of their
// own, unless a tied head uses both at once.
std::vector<int64_t> share_buffers(RankLayout& layout, bool tied_here, int64_t rotating,
                                   int32_t Bucket::*buffer) {
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
  std::vector<int64_t> turns(static_cast<size_t>(rotating), -1);
  for (size_t b = layout.buckets.size(); b-- > 0;) {
    Bucket& bucket = layout.buckets[b];
    if (static_cast<int64_t>(b) == layout.persistent_bucket) continue;
    const auto layer = std::find_if(
        layout.layers.begin(), layout.layers.end(),
        [&](const model::LayerSpec& candidate) { return candidate.index == bucket.first_layer; });
    SMP_CHECK(layer != layout.layers.end());
    if (!is_end(*layer)) {
      place(turns[static_cast<size_t>(block++ % rotating)], bucket);
    } else {
      place(layer->kind == model::LayerKind::kHead && tied_here ? tied_head : ends, bucket);
    }
  }
  if (layout.persistent_bucket >= 0) {
    int64_t own = -1;
    place(own, layout.buckets.back());
  }
  return elements;
}

int64_t sum_of(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t round_up(int64_t value, int64_t multiple) { return div_up(value, multiple) * multiple; }

}  // namespace

int64_t host_update_elements(const RankLayout& layout) {
  return std::min(layout.optimizer_elements, kHostUpdateElements);
}

int64_t kv_copies(const Plan& plan) {
  return plan.job.parallel.tensor_parallel.attention
             ? model::kv_copies(plan.job.model, plan.degrees.tensor)
             : 1;
}

bool shards_gradients(const Plan& plan) {
  return plan.degrees.shard > 1 &&
         plan.job.parallel.sharding.value_or(Sharding::kNone) >= Sharding::kGradients;
}

bool shards_weights(const Plan& plan) {
  return plan.degrees.shard > 1 && plan.job.parallel.sharding == Sharding::kParameters;
}

bool tied_across_stages(const Plan& plan) {
  const schedule::ScheduleShape shape = chunks_of(plan);
  const int64_t head = schedule::place_of_chunk(shape, shape.stages * shape.chunks() - 1).stage;
  return plan.job.model.tied_embeddings && head != 0;
}

RankLayout rank_layout(const Plan& plan, int64_t rank) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const ModelSpec& model = plan.job.model;
  RankLayout layout;
  layout.rank = rank;
  layout.coord = mesh.coord_of(rank);
  std::vector<StageLayers> stages = layers_by_stage(plan);
  StageLayers& stage = stages[static_cast<size_t>(layout.coord.pipeline)];
  layout.layers = std::move(stage.layers);
  layout.chunk_layers = std::move(stage.chunk_layers);
  const auto ranges = bucket_ranges(plan, layout.layers, layout.chunk_layers);

  // Persistent tensors are in front, in a bucket of their own. All others are in forward order, so
  // their buckets are placed from the last to the first.
  int64_t persistent = 0;
  for (const model::LayerSpec& layer : layout.layers) {
    persistent += elements_of(plan, layer, layout.coord.tensor, true);
  }
  int64_t small_offset = 0, offset = round_up(persistent, plan.degrees.shard);
  layout.buckets.resize(ranges.size());
  if (persistent > 0) {
    layout.persistent_bucket = static_cast<int32_t>(ranges.size());
    layout.buckets.push_back(
        {0, offset, layout.layers.front().index, layout.layers.back().index, -1, -1});
  }
  size_t next = ranges.size();  // the bucket before which we are
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const model::LayerSpec& layer = layout.layers[i];
    if (next > 0 && ranges[next - 1].first == i) {
      Bucket& bucket = layout.buckets[--next];
      bucket.begin = offset;
      bucket.first_layer = layer.index;
      bucket.last_layer = layout.layers[ranges[next].second - 1].index;
    }
    const std::vector<model::ParameterSpec> tensors = specs_of(plan, layer);
    const std::vector<bool> persists = persistent_of(plan, tensors);
    for (size_t k = 0; k < tensors.size(); ++k) {
      int64_t& at = persists[k] ? small_offset : offset;
      layout.parameters.push_back(place(plan, layout.coord, tensors[k], layer.index, at));
      at += layout.parameters.back().box.size();
    }
    if (next < ranges.size() && ranges[next].second == i + 1) {
      offset = round_up(offset, plan.degrees.shard);
      layout.buckets[next].end = offset;
    }
  }
  layout.elements = offset;
  layout.optimizer_elements = offset / plan.degrees.shard;

  const auto buckets = static_cast<int64_t>(ranges.size());
  const bool tied_here = model.tied_embeddings && !tied_across_stages(plan);
  if (shards_gradients(plan)) {
    // One is filled while another is reduced; deferred weight gradients keep all buffers filled.
    const bool defers = schedule::defers_weight_gradients(chunks_of(plan).kind);
    layout.gradient_buffers = share_buffers(
        layout, tied_here || defers, defers ? buckets : kGradientBuffers, &Bucket::gradient_buffer);
  }
  if (shards_weights(plan)) {
    int64_t gathered = std::min(1 + plan.job.parallel.prefetch_layers, buckets);
    const int64_t most = plan.job.parallel.max_live_parameters;
    const int64_t lasting = round_up(persistent, plan.degrees.shard);
    do {
      layout.weight_buffers = share_buffers(layout, tied_here, gathered, &Bucket::weight_buffer);
    } while (most > 0 && sum_of(layout.weight_buffers) - lasting > most && --gathered > 0);
  }

  layout.tied_gradient_apart =
      tied_here && plan.job.training.deterministic && layout.coord.pipeline == 0;
  const bool is_last = layout.coord.pipeline + 1 == plan.degrees.pipeline;
  if (tied_across_stages(plan) && is_last) {
    const model::LayerSpec embedding = model::layers_of(model).front();
    layout.tied_copy = place(plan, layout.coord, specs_of(plan, embedding).front(), 0, 0);
    layout.tied_copy->counts = false;
  }
  return layout;
}

}  // namespace smp::layout
