#include "reduce/copy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "groups/shm/slot_writes.h"

using namespace smp;

namespace {

constexpr int64_t kLine = 64, kRoom = 20 * kLine;

std::vector<std::byte> counting(int64_t bytes) {
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::byte(i * 7 + 1);
  return all;
}

}  // namespace

TEST_CASE(
    "copies write what they shall, wherever it lies, and nothing else, around the cache and not") {
  const std::vector<std::byte> from = counting(kRoom);
  for (const int64_t from_at : {0, 1, 8, 63})
    for (const int64_t to_at : {0, 1, 4, 32, 63, 64})
      for (const int64_t bytes : {0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 700, 1100})
        for (const bool non_temporal : {false, true}) {
          std::vector<std::byte> to(size_t(kRoom), std::byte(0)), expected = to;
          reduce::copy_bytes(to.data() + to_at, from.data() + from_at, bytes, non_temporal);
          std::copy_n(from.begin() + from_at, bytes, expected.begin() + to_at);
          CAPTURE(from_at);
          CAPTURE(to_at);
          CAPTURE(bytes);
          CAPTURE(non_temporal);
          CHECK(to == expected);
        }
}

TEST_CASE("every instruction set's copies of lines leave less than four") {
  const std::vector<std::byte> from = counting(kRoom);
  for (const reduce::LineCopies& copies : reduce::line_copies_here())
    for (const reduce::LineCopy copy : {copies.cached, copies.non_temporal})
      for (const int64_t bytes : {0, 63, 64, 255, 256, 511, 1100}) {
        alignas(kLine) std::byte to[kRoom] = {};
        const int64_t done = copy(to, from.data() + 3, bytes);
        CAPTURE(copies.name);
        CAPTURE(bytes);
        CHECK(done <= bytes);
        CHECK(bytes - done < 4 * kLine);
        CHECK(std::equal(to, to + done, from.data() + 3));
        CHECK(std::all_of(to + done, to + kRoom, [](std::byte b) { return b == std::byte(0); }));
      }
}

TEST_CASE(
    "slots are written around the cache when too many copies were slow and that is quicker, and "
    "then again through it") {
  using std::chrono::microseconds;
  constexpr int64_t kBytes = 256 << 10;  // 9 us through a cache that is shared, 110 where none is
  groups::SlotWrites writes;
  // Of copies of which each takes so long through the cache and around it, how many went around it.
  bool fills_cache = false;
  const auto count_non_temporal = [&](int copies, int through, int non_temporal) {
    int count = 0;
    for (int i = 0; i < copies; ++i) {
      const groups::SlotWrites::CopyMode mode = writes.next();
      count += mode.non_temporal;
      if (mode.is_timed)
        writes.note(kBytes, microseconds(mode.non_temporal ? non_temporal : through), fills_cache);
    }
    return count;
  };
  CHECK(count_non_temporal(2, 110, 12) == 0);
  CHECK(count_non_temporal(11, 9, 12) == 0);  // the first is timed
  CHECK(count_non_temporal(1, 110, 12) == 0);
  CHECK(count_non_temporal(1, 5000, 12) == 0);  // another process had the CPU: says nothing
  CHECK(count_non_temporal(1, 110, 12) == 0);
  CHECK(count_non_temporal(3 + 1024, 110, 12) == 3 + 1024);
  CHECK(count_non_temporal(3, 110, 12) == 0);
  CHECK(count_non_temporal(3 + 1024, 110, 12) == 3 + 1024);  // it is still so
  CHECK(count_non_temporal(1 + 10, 9, 12) == 0);
  fills_cache = true;  // so slow it may be by memory
  CHECK(count_non_temporal(94 * 11, 55, 18) == 0);
  fills_cache = false;
  CHECK(count_non_temporal(3 + 3 + 1024, 55, 18) ==
        3 + 1024);  // a Zen 3, whose CPUs share no cache
  CHECK(count_non_temporal(1 + 10, 9, 12) == 0);
  // Where memory is what is slow it is so around the cache as well.
  CHECK(count_non_temporal(3 + 3 + 1024, 110, 100) == 3);
  // One of 25 is not too many.
  for (int i = 0; i < 100; ++i) {
    CHECK(count_non_temporal(1, 110, 12) == 0);
    CHECK(count_non_temporal(24 * 11, 9, 12) == 0);
  }
}

TEST_CASE("what is copied to slots is there, by either mode") {
  const std::vector<std::byte> from = counting(64 << 10);
  groups::SlotWrites writes;
  for (int i = 0; i < 3; ++i)
    writes.note(int64_t(from.size()), std::chrono::microseconds(28), false);
  for (int i = 0; i < 1030; ++i) {
    std::vector<std::byte> to(from.size());
    writes.copy(to.data(), from.data(), int64_t(from.size()), false);
    REQUIRE(to == from);
  }
}
