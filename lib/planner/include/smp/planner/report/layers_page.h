#pragma once

#include <string>
#include <string_view>

#include "smp/plan/spec/plan.h"

namespace smp::report {

// The programs of a plan's layers on tensor rank 0: a line for each operation, with its flops, the
// bytes that it moves and sends, and the bytes alive behind it. Alike layers are told once.
// `layer`: one layer alone, by name, or "" for all. Throws ConfigError for a name that no layer
// has. For people.
std::string layers_text(const Plan& plan, std::string_view layer);
std::string layers_html(const Plan& plan, std::string_view layer);

}  // namespace smp::report
