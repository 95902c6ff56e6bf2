#include "smp/plan/model/frozen_parts.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::model {
namespace {

constexpr std::string_view kLayers = "layers";

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return is_whole ? std::optional(value) : std::nullopt;
}

struct Range {
  int64_t first = 0, last = 0;
};

// "layers.0-15", "layers.0"; `layers` is all `blocks` of them.
std::optional<Range> range_of(std::string_view item, int64_t blocks) {
  if (item == kLayers) return Range{0, blocks - 1};
  if (!item.starts_with(kLayers) || item.size() < kLayers.size() + 2) return std::nullopt;
  if (item[kLayers.size()] != '.') return std::nullopt;
  const std::string_view numbers = item.substr(kLayers.size() + 1);
  const size_t dash = numbers.find('-');
  const auto first = whole_number(numbers.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole_number(numbers.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return Range{*first, *last};
}

}  // namespace

FrozenParts frozen_parts(const JobSpec& job) {
  FrozenParts parts;
  for (const std::string& item : job.training.frozen) {
    parts.embedding |= item == "embedding";
    parts.head |= item == "head";
    if (const auto range = range_of(item, block_count(job.model))) {
      parts.first_blocks = range->last + 1;
    }
  }
  return parts;
}

bool is_frozen_block(const JobSpec& job, const LayerSpec& layer) {
  const int64_t frozen = frozen_blocks(job);
  return frozen > 0 && is_transformer_block(layer.kind) && layer.index <= frozen;  // 0: embedding
}

std::string problem_of_frozen(const std::vector<std::string>& frozen, int64_t blocks) {
  bool embedding = false, head = false, layers = false, all = false;
  for (const std::string& item : frozen) {
    const bool is_end = item == "embedding" || item == "head";
    const auto range = range_of(item, blocks);
    if (!is_end && !range) {
      return fmt::format(
          "must name embedding, head, layers or first layers as in layers.0-15, "
          "not {}",
          item);
    }
    bool& named = item == "embedding" ? embedding : item == "head" ? head : layers;
    if (named) return fmt::format("names {} twice", range ? kLayers : item);
    named = true;
    if (!range) continue;
    if (range->first != 0) {
      return fmt::format("names {}: the layers must be the first ones, as in layers.0-{}", item,
                         range->last);
    }
    if (range->last >= blocks) {
      return fmt::format("names {}, but the last layer is layers.{}", item, blocks - 1);
    }
    all = range->last + 1 == blocks;
  }
  if (embedding && head && all) {
    return "leaves nothing to train: leave out a part, or use training.lora";
  }
  return "";
}

}  // namespace smp::model
