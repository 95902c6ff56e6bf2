#include "size_range.h"

#include <CLI/CLI.hpp>

namespace smp {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // the next size does not overflow

}  // namespace

std::vector<int64_t> sizes_in(const SizeRange& range) {
  std::vector<int64_t> sizes;
  for (uint64_t bytes = range.from; bytes <= range.to; bytes *= uint64_t(range.factor))
    sizes.push_back(int64_t(bytes));
  return sizes;
}

void add_size_options(CLI::App& command, SizeRange& range) {
  const auto size = CLI::AsSizeValue(true);
  command.add_option("-b,--from", range.from, "smallest size; default 1Ki")
      ->type_name("BYTES")
      ->transform(size);
  command.add_option("-e,--to", range.to, "largest size; default 64Mi")
      ->type_name("BYTES")
      ->transform(size);
  command.add_option("-f,--factor", range.factor, "from size to size; default 4")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 20));
}

void check(const SizeRange& range) {
  if (range.from < 1 || range.from > range.to)
    throw CLI::ValidationError("--from", "is at least 1 and at most --to");
  if (range.to > kMostBytes) throw CLI::ValidationError("--to", "is at most 1Ti");
}

}  // namespace smp
