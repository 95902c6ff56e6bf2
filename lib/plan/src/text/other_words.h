#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smp::text {

// "1F1B is called 'interleaved' here": of a word that other tools use for one of `choices`; nothing
// of any other word. Upper and lower case, '-' and '_' are taken as equal, and `torch.` and
// `ShardingStrategy.` are left out. Pure; any thread.
std::optional<std::string> hint_of_other_word(std::string_view word,
                                              const std::vector<std::string>& choices);

}  // namespace smp::text
