#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace smp::hosts {

// "all", "none" or a list such as "0,2-3,8-62:9,last", where ":9" takes every ninth. Throws
// ConfigError for a list that is broken or names a rank that a job of `world_size` ranks does not
// have.
std::set<int> parse_rank_list(std::string_view text, int world_size);

// "0-3,7" of ranks in ascending order; numbers of `width` digits at least.
std::string list_of_ranks(const std::vector<int>& ranks, int width = 0);

// "rank 3", "ranks 0, 2-4". The ranks are in ascending order.
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace smp::hosts
