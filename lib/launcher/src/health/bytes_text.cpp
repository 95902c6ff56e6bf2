#include "smp/launcher/health/bytes_text.h"

#include <fmt/format.h>

namespace smp::health {
namespace {

constexpr int64_t kMiBytes = 1 << 20, kGiBytes = 1 << 30;

}  // namespace

std::string text_of_bytes(int64_t bytes) {
  if (bytes >= 10 * kGiBytes)
    return fmt::format("{:.0f} GiB", static_cast<double>(bytes) / kGiBytes);
  if (bytes >= kGiBytes) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiBytes);
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiBytes);
}

}  // namespace smp::health
