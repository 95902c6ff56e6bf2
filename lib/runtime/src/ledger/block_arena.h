#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace smp::ledger {

// The memory of one rank's tensors: a best-fit allocator. Blocks are cut from ranges that grow at
// their end. A freed block is merged with its free neighbours and reused. Memory returns to the
// system only when the arena is destroyed, so steps with equal allocations stop asking the system.
// The caller locks.
class BlockArena {
 public:
  static constexpr size_t kAlignment = 64;

  BlockArena() = default;
  ~BlockArena();
  BlockArena(const BlockArena&) = delete;
  BlockArena& operator=(const BlockArena&) = delete;

  // `bytes`: a multiple of kAlignment, above 0. nullptr when the system has no more.
  void* allocate(size_t bytes);
  void release(void* block, size_t bytes);

  int64_t growths() const { return growths_; }        // requests to the system for memory
  int64_t held_bytes() const { return held_bytes_; }  // memory from the system

 private:
  // Addresses [begin, reserved), of which those before `end` are memory.
  struct Range {
    char* begin = nullptr;
    char* end = nullptr;
    char* reserved = nullptr;
  };

  bool grow(size_t bytes);
  void add_free(char* begin, size_t bytes);
  void remove_free(std::map<char*, size_t>::iterator block);

  std::vector<Range> ranges_;
  std::map<char*, size_t> free_;                     // by address
  std::set<std::pair<size_t, char*>> free_by_size_;  // the same blocks
  int64_t growths_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace smp::ledger
