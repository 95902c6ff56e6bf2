#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smp::text {

// "1F1B is called 'interleaved' here" for a word that other tools use for one of `choices`, and
// "... is called 'host' now" for a word that this program used before. Nothing for any other word.
// Case does not count, '-' equals '_', and a leading `torch.` or `ShardingStrategy.` is dropped.
// Pure; any thread.
std::optional<std::string> hint_of_other_word(std::string_view word,
                                              const std::vector<std::string>& choices);

}  // namespace smp::text
