#include "smp/launcher/hosts/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "smp/plan/base/errors.h"

namespace smp::hosts {
namespace {

constexpr double kLongestSeconds = 10.0 * 365 * 24 * 3600;

double seconds_in(std::string_view unit) {
  if (unit == "ms") return 1e-3;
  if (unit.empty() || unit == "s") return 1;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  return 0;
}

}  // namespace

std::chrono::milliseconds parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  const double unit = seconds_in(text.substr(static_cast<size_t>(end - text.data())));
  const double seconds = value * unit;
  const bool is_too_large = error == std::errc::result_out_of_range;
  if ((error != std::errc{} && !is_too_large) || unit == 0 || !std::isfinite(value) || value < 0)
    throw ConfigError(
        fmt::format("'{}' is not a duration: write it like 250ms, 5s, 2m or 1h", text));
  if (is_too_large || seconds > kLongestSeconds)
    throw ConfigError(fmt::format("'{}' is longer than the longest duration, {}h (10 years)", text,
                                  kLongestSeconds / 3600));
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

std::string duration_text(std::chrono::milliseconds time) {
  const int64_t ms = time.count();
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 60'000) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
  return fmt::format("{} min {} s", ms / 60'000, ms % 60'000 / 1000);
}

}  // namespace smp::hosts
