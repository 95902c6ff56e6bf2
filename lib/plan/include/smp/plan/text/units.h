#pragma once

#include <cmath>
#include <cstdint>
#include <string>

// Numbers as people read them: the only place where bytes become MiB and GiB. Pure; any thread.
namespace smp::text {

inline int64_t whole_bytes(double bytes) { return std::llround(bytes); }
std::string with_commas(int64_t number);  // 8388608 -> "8,388,608"
std::string human_bytes(int64_t bytes);   // 1288490188 -> "1.20 GiB"
std::string human_time(double seconds);   // 0.0123 -> "12.3 ms"
std::string human_count(double number);   // 68976648192 -> "69.0 B"

}  // namespace smp::text
