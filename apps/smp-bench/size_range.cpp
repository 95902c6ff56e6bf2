#include "size_range.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

namespace smp {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // the next size does not overflow

// As a share of the size before, so that sizes divide among ranks where that does.
constexpr int64_t kSteps = 16;
constexpr int64_t kElementBytes = 8;

}  // namespace

std::vector<int64_t> sizes_in(const SizeRange& range) {
  std::vector<int64_t> sizes;
  for (uint64_t bytes = range.from; bytes <= range.to; bytes *= uint64_t(range.factor))
    sizes.push_back(int64_t(bytes));
  return sizes;
}

std::vector<int64_t> sizes_between(const SizeRange& range) {
  const std::vector<int64_t> sizes = sizes_in(range);
  std::vector<int64_t> between;
  for (size_t i = 1; i < sizes.size(); ++i) {
    const double middle = std::sqrt(double(sizes[i - 1]) * double(sizes[i]));
    const int64_t step = std::max(kElementBytes, sizes[i - 1] / kSteps);
    const int64_t bytes = std::llround(middle / double(step)) * step;
    if (bytes > sizes[i - 1] && bytes < sizes[i]) between.push_back(bytes);
  }
  return between;
}

void add_size_options(CLI::App& command, SizeRange& range) {
  const auto size = CLI::AsSizeValue(true);
  command.add_option("-b,--from", range.from, "smallest size; default 1Ki")
      ->type_name("BYTES")
      ->transform(size);
  command.add_option("-e,--to", range.to, "largest size; default 64Mi")
      ->type_name("BYTES")
      ->transform(size);
  command
      .add_option("-f,--factor", range.factor,
                  "factor between sizes; default 4, with --calibrate 2")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 20));
}

void check(const SizeRange& range) {
  if (range.from < 1 || range.from > range.to)
    throw CLI::ValidationError("--from", "expected at least 1 and at most --to");
  if (range.to > kMostBytes) throw CLI::ValidationError("--to", "expected at most 1Ti");
}

}  // namespace smp
