#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// "did you mean": the candidate nearest to a mistyped word. Pure; safe from any thread.
namespace smp::text {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The nearest candidate within a third of the word's length (at least one edit). Case does not
// count, and '-' equals '_'. The first of several equally near; nothing if none is near.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace smp::text
