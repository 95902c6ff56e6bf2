#pragma once

#include <vector>

namespace smp::shm {

// The CPU that this thread runs on; -1 where the kernel does not say.
int current_cpu();

// Moves this thread to the nearest CPU, by their numbers, of those that it may run on and that are
// not `taken`; it may go on to any other as before. Whether there was one and the kernel agreed.
bool leave_cpu(const std::vector<int>& taken);

}  // namespace smp::shm
