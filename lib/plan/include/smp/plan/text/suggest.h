#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// "did you mean": the candidate nearest to a mistyped word. Pure; safe from any thread.
namespace smp::text {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The nearest candidate within a third of the word's length (at least one edit), upper and lower
// case and '-' and '_' taken as equal; the first of equals; nothing where none is near.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace smp::text
