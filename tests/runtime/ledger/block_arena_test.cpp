#include "ledger/block_arena.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

using namespace smp;
using namespace smp::ledger;

namespace {

struct Block {
  unsigned char* data = nullptr;
  size_t bytes = 0;
  unsigned char mark = 0;
};

bool holds_its_mark(const Block& block) {
  for (size_t i = 0; i < block.bytes; i += 61) {
    if (block.data[i] != block.mark) return false;
  }
  return block.data[block.bytes - 1] == block.mark;
}

}  // namespace

TEST_CASE("blocks do not overlap, whatever the order of allocations and releases") {
  BlockArena arena;
  std::mt19937_64 random(7);
  std::vector<Block> blocks;
  int64_t live = 0, most = 0;
  for (int i = 0; i < 20000; ++i) {
    if (blocks.empty() || (blocks.size() < 200 && random() % 2 == 0)) {
      Block block;
      block.bytes = BlockArena::kAlignment * (1 + random() % (random() % 16 == 0 ? 4096 : 32));
      block.mark = static_cast<unsigned char>(random());
      block.data = static_cast<unsigned char*>(arena.allocate(block.bytes));
      REQUIRE(block.data != nullptr);
      REQUIRE(reinterpret_cast<uintptr_t>(block.data) % BlockArena::kAlignment == 0);
      std::memset(block.data, block.mark, block.bytes);
      blocks.push_back(block);
      live += static_cast<int64_t>(block.bytes);
      most = std::max(most, live);
    } else {
      const size_t at = random() % blocks.size();
      REQUIRE(holds_its_mark(blocks[at]));
      arena.release(blocks[at].data, blocks[at].bytes);
      live -= static_cast<int64_t>(blocks[at].bytes);
      std::swap(blocks[at], blocks.back());
      blocks.pop_back();
    }
  }
  CHECK(arena.held_bytes() >= most);
  CHECK(arena.held_bytes() <= 2 * most + (4 << 20));
}

TEST_CASE("what is free is joined and given out again") {
  BlockArena arena;
  std::vector<void*> small;
  for (int i = 0; i < 1024; ++i) small.push_back(arena.allocate(4096));
  const int64_t held = arena.held_bytes(), growths = arena.growths();
  CHECK(held == 4 << 20);
  for (size_t i = 0; i < small.size(); i += 2) arena.release(small[i], 4096);
  for (size_t i = 1; i < small.size(); i += 2) arena.release(small[i], 4096);
  void* const whole = arena.allocate(4 << 20);
  CHECK(whole == small.front());
  CHECK(arena.growths() == growths);
  arena.release(whole, 4 << 20);
  // A larger one takes the free end along.
  void* const larger = arena.allocate(5 << 20);
  CHECK(larger == whole);
  CHECK(arena.held_bytes() == 6 << 20);
}

TEST_CASE("rounds of the same allocations stop asking the system for memory") {
  BlockArena arena;
  std::mt19937_64 random(11);
  std::vector<std::pair<size_t, size_t>> script;  // bytes, or 0 and which to release
  size_t live = 0;
  for (int i = 0; i < 2000; ++i) {
    if (live == 0 || random() % 2 == 0) {
      script.emplace_back(64 * (1 + random() % 5000), 0);
      ++live;
    } else {
      script.emplace_back(0, random() % live--);
    }
  }
  const auto play = [&] {
    std::vector<std::pair<void*, size_t>> blocks;
    for (const auto& [bytes, which] : script) {
      if (bytes > 0) {
        blocks.emplace_back(arena.allocate(bytes), bytes);
      } else {
        arena.release(blocks[which].first, blocks[which].second);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
    for (const auto& [block, bytes] : blocks) arena.release(block, bytes);
  };
  for (int i = 0; i < 3; ++i) play();
  const int64_t growths = arena.growths();
  play();
  CHECK(arena.growths() == growths);
}
