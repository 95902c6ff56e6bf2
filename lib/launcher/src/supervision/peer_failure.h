#pragma once

#include <string>
#include <vector>

namespace smp::supervision {

// Whether the last lines of a rank's standard error report that its connection to a peer ended, in
// the words of NCCL, gloo or torch's store. Then another rank failed first. For programs that leave
// no error file.
bool reports_peer_failure(const std::vector<std::string>& last_lines);

}  // namespace smp::supervision
