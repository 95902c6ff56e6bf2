#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smp::reduce {

// Copies `bytes` bytes; does nothing if to == from. `non_temporal`: with non-temporal stores, which
// do not read each line of a large result before they overwrite it.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool non_temporal = false);

// Prefetches a few lines that will be written soon and that others have read. They arrive while the
// caller waits for something else.
void prefetch_for_write(std::byte* to, int64_t bytes);

// Copies whole lines to an address that is a multiple of 64. Returns the number of bytes copied;
// fewer than four lines are left.
using LineCopy = int64_t (*)(std::byte* to, const std::byte* from, int64_t bytes);
struct LineCopies {
  const char* name;
  LineCopy cached;
  LineCopy non_temporal;  // by non-temporal stores
};
// The copies that this CPU can run. The widest vectors come last; they are the fastest for
// non-temporal stores.
std::vector<LineCopies> line_copies_here();

}  // namespace smp::reduce
