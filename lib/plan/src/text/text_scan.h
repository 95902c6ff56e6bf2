#pragma once

#include <string_view>

#include "smp/plan/text/diagnostics.h"

// Checks on the bytes of a YAML file before a parser sees them: valid UTF-8, no control characters
// (yaml-cpp takes some for the end of the file), no lone carriage returns, no tabs in the
// indentation (yaml-cpp reports them as another mistake).
namespace smp::text {

// False if anything was reported.
bool scan_text(std::string_view text, int source, Diagnostics& diagnostics);

}  // namespace smp::text
