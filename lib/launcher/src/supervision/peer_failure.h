#pragma once

#include <string>
#include <vector>

namespace smp::supervision {

// Whether the last lines of a rank's standard error say that its connection to another rank has
// ended, as NCCL, gloo and torch's store put it. A program that leaves no error file shows so
// that another one failed first.
bool reports_peer_failure(const std::vector<std::string>& last_lines);

}  // namespace smp::supervision
