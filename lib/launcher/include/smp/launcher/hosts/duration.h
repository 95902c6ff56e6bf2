#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace smp::hosts {

// "250ms", "5s", "2m", "1h" or plain seconds ("5", "0.5"). Throws ConfigError for anything else.
std::chrono::milliseconds parse_duration(std::string_view text);

// For people: "250 ms", "3.2 s", "2 min 5 s".
std::string duration_text(std::chrono::milliseconds time);

}  // namespace smp::hosts
