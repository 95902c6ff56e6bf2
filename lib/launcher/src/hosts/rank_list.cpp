#include "smp/launcher/hosts/rank_list.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "smp/plan/base/errors.h"

namespace smp::hosts {
namespace {

std::optional<int> parse_rank(std::string_view text, int world_size) {
  if (text == "last") return world_size - 1;
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
    const size_t colon = item.find(':');
    const std::string_view range = item.substr(0, colon);
    const size_t dash = range.find('-');
    const auto first = parse_rank(range.substr(0, dash), world_size);
    const auto last = dash == range.npos ? first : parse_rank(range.substr(dash + 1), world_size);
    const auto every = colon == item.npos ? 1 : parse_rank(item.substr(colon + 1), world_size);
    if (!first || !last || *first > *last || !every || *every == 0 ||
        (colon != item.npos && dash == range.npos))
      throw ConfigError(fmt::format(
          "'{}' is not a list of ranks: write it like all, none, 0,2-3,last or 0-62:8", text));
    if (*last >= world_size)
      throw ConfigError(fmt::format("'{}' names rank {}, but the job has {} rank{}: 0{}", text,
                                    *last, world_size, world_size == 1 ? "" : "s",
                                    world_size == 1 ? "" : fmt::format("-{}", world_size - 1)));
    for (int rank = *first; rank <= *last; rank += *every) ranks.insert(rank);
    if (item.size() == rest.size()) return ranks;
    rest.remove_prefix(item.size() + 1);
  }
}

std::string list_of_ranks(const std::vector<int>& ranks, int width) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{:0{}}", text.empty() ? "" : ",", ranks[i], width);
    if (last > i) text += fmt::format("{}{:0{}}", last == i + 1 ? "," : "-", ranks[last], width);
    i = last + 1;
  }
  return text;
}

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const char byte : list_of_ranks(ranks)) {
    text += byte;
    if (byte == ',') text += ' ';
  }
  return text;
}

}  // namespace smp::hosts
