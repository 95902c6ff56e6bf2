#pragma once

#include <string>

namespace smp {

// Lower-case hex of `bytes` random bytes from the kernel: names and keys of jobs. Throws
// std::system_error where there are none. Any thread.
std::string random_hex(int bytes);

}  // namespace smp
