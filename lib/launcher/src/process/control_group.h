#pragma once

#include <string>
#include <vector>

namespace smp::process {

// Files of the control groups that this process is in and that account for memory, as far as they
// are there: `unified` in the hierarchy of cgroup v2, `legacy` in the memory controller's of v1.
std::vector<std::string> own_group_files(const std::string& unified, const std::string& legacy);

}  // namespace smp::process
