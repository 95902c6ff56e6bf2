#include "smp/plan/text/units.h"

#include <fmt/format.h>

#include <cmath>

namespace smp::text {

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number < 0 ? -number : number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return number < 0 ? fmt::format("-{}", text) : text;
}

std::string human_bytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (std::abs(b) < 10240.0) return fmt::format("{} B", with_commas(bytes));
  if (std::abs(b) < 1024.0 * 1024) return fmt::format("{:.1f} KiB", b / 1024);
  if (std::abs(b) < 1024.0 * 1024 * 1024) return fmt::format("{:.2f} MiB", b / (1024.0 * 1024));
  return fmt::format("{:.2f} GiB", b / (1024.0 * 1024 * 1024));
}

std::string human_time(double seconds) {
  if (seconds > 0 && seconds < 5e-8) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string human_count(double number) {
  if (number < 1e3) return fmt::format("{:.0f}", number);
  if (number < 1e6) return fmt::format("{:.1f} K", number / 1e3);
  if (number < 1e9) return fmt::format("{:.1f} M", number / 1e6);
  return fmt::format("{:.1f} B", number / 1e9);
}

}  // namespace smp::text
