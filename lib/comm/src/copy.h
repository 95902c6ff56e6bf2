#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smp::shm {

// Copies `bytes` bytes; nothing when to == from. `stream` writes around the cache, which saves
// reading each line of a large result before it is overwritten.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool stream = false);

// Asks for the lines of what will be written soon and others have read, if they are few: they come
// while the caller waits for something else.
void fetch_to_write(std::byte* to, int64_t bytes);

// Copy whole lines to an address at a multiple of 64 and return how many bytes that were; the few
// that are left are less than four lines.
using LineCopy = int64_t (*)(std::byte* to, const std::byte* from, int64_t bytes);
struct LineCopies {
  const char* name;
  LineCopy cached;
  LineCopy stream;  // around the cache
};
// Those of the instruction sets of this CPU, the widest last: with vectors of 16 bytes 64 MiB took
// a quarter longer around the cache.
std::vector<LineCopies> line_copies_here();

}  // namespace smp::shm
