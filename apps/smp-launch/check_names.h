#pragma once

#include <array>
#include <string_view>

namespace smp {

// The checks of a dry run, by the names under which they are printed and skipped.
inline constexpr std::array<std::string_view, 17> kCheckNames = {
    "plan", "hosts", "placement", "degrees", "batch", "memory", "engine",  "steps",     "proof",
    "data", "start", "tokenizer", "worker",  "order", "pushed", "program", "run folder"};

}  // namespace smp
