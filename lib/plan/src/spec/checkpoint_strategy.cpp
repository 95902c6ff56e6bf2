#include "smp/plan/spec/checkpoint_strategy.h"

#include <charconv>
#include <limits>

namespace smp {

std::optional<int64_t> layers_per_checkpoint(std::string_view strategy) {
  constexpr std::string_view kGroup = "group_";
  if (strategy == "each") return 1;
  if (strategy == "contiguous") return std::numeric_limits<int64_t>::max();
  if (!strategy.starts_with(kGroup)) return std::nullopt;
  strategy.remove_prefix(kGroup.size());
  int64_t layers = 0;
  const char* const end = strategy.data() + strategy.size();
  const auto [stop, problem] = std::from_chars(strategy.data(), end, layers);
  if (problem != std::errc() || stop != end || layers < 1) return std::nullopt;
  return layers;
}

}  // namespace smp
