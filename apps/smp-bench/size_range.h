#pragma once

#include <cstdint>
#include <vector>

namespace CLI {
class App;
}

namespace smp {

// Sizes of buffers, as -b, -e and -f say.
struct SizeRange {
  uint64_t from = 1 << 10, to = 64 << 20;
  int factor = 4;
};

std::vector<int64_t> sizes_in(const SizeRange& range);
// One between each two neighbours of them, about as far from either in proportion: the smaller one
// and some sixteenths of it, or at least of 8 bytes.
std::vector<int64_t> sizes_between(const SizeRange& range);

void add_size_options(CLI::App& command, SizeRange& range);
void check(const SizeRange& range);  // throws CLI::ValidationError

}  // namespace smp
