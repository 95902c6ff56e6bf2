#pragma once

#include <string>

namespace smp {

// Lower-case hex of `bytes` random bytes from the kernel, for names and keys of jobs. Throws
// std::system_error if the kernel gives none. Any thread.
std::string random_hex(int bytes);

}  // namespace smp
