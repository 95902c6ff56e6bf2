#include "smp/launcher/rank_list.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "smp/plan/errors.h"

namespace smp {
namespace {

std::optional<int> parse_rank(std::string_view text) {
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc{} || end != text.data() + text.size() || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace

std::set<int> parse_rank_list(std::string_view text, int world_size) {
  std::set<int> ranks;
  if (text == "none") return ranks;
  if (text == "all") {
    for (int rank = 0; rank < world_size; ++rank) ranks.insert(rank);
    return ranks;
  }
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const size_t dash = item.find('-');
    const auto first = parse_rank(item.substr(0, dash));
    const auto last = dash == item.npos ? first : parse_rank(item.substr(dash + 1));
    if (!first || !last || *first > *last)
      throw ConfigError(
          fmt::format("'{}' is not a list of ranks: write it like all, none or 0,2-3", text));
    if (*last >= world_size)
      throw ConfigError(fmt::format("'{}' names rank {}, but the job has {} rank{}: 0{}", text,
                                    *last, world_size, world_size == 1 ? "" : "s",
                                    world_size == 1 ? "" : fmt::format("-{}", world_size - 1)));
    for (int rank = *first; rank <= *last; ++rank) ranks.insert(rank);
    if (item.size() == rest.size()) return ranks;
    rest.remove_prefix(item.size() + 1);
  }
}

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace smp
