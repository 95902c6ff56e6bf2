#pragma once

#include <cstdint>
#include <string>

namespace smp::health {

// "1.5 GiB", "64 MiB".
std::string text_of_bytes(int64_t bytes);

}  // namespace smp::health
