#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smp::reduce {

// Copies `bytes` bytes; does nothing if to == from. `stream`: by non-temporal stores, which saves
// reading each line of a large result before it is overwritten.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool stream = false);

// Prefetches lines that will be written soon and that others have read, if they are few: they come
// while the caller waits for something else.
void fetch_to_write(std::byte* to, int64_t bytes);

// Copies whole lines to an address at a multiple of 64 and returns how many bytes that were; fewer
// than four lines are left.
using LineCopy = int64_t (*)(std::byte* to, const std::byte* from, int64_t bytes);
struct LineCopies {
  const char* name;
  LineCopy cached;
  LineCopy stream;  // by non-temporal stores
};
// Those that this CPU can run, the widest vectors last, which are the quickest when non-temporal.
std::vector<LineCopies> line_copies_here();

}  // namespace smp::reduce
