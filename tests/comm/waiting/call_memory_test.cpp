#include <doctest/doctest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "segment/prefaulter.h"
#include "waiting/thread_cached_allocator.h"

using namespace smp;

namespace {

constexpr int64_t kPage = int64_t(segment::kPageBytes), kAtOnce = segment::Prefaulter::kAtOnce;

// Pages of [begin, end) that exist.
int64_t pages(const segment::SharedJob& job, int64_t begin, int64_t end) {
  std::vector<unsigned char> exists(size_t((end - begin) / kPage));
  REQUIRE(mincore(job.at(begin), size_t(end - begin), exists.data()) == 0);
  int64_t count = 0;
  for (const unsigned char one : exists) count += one & 1;
  return count;
}

}  // namespace

TEST_CASE("memory is mapped ahead once, as far as it is allocated") {
  segment::Mapping mapping = segment::Mapping::anonymous(segment::SharedJob::bytes(1, 1));
  segment::SharedJob::prepare(mapping, 1, 1);
  const segment::SharedJob job(std::move(mapping), 1);
  const int64_t region = job.offset_of(job.symmetric().begin, 1);
  const int64_t first = (region / kAtOnce + 1) * kAtOnce;  // where one of its pieces begins
  const segment::Prefaulter::Range allocated = {first + 3 * kPage + 64,
                                                first + kAtOnce + 5 * kPage};
  segment::Prefaulter mapped;
  CHECK(mapped.map(job, {first + 9 * kPage, first + 9 * kPage + 1}, allocated));
  CHECK_FALSE(mapped.map(job, {first + 3 * kPage + 64, first + kAtOnce}, allocated));
  CHECK(pages(job, region / kPage * kPage, first + 3 * kPage) == 0);
  CHECK(pages(job, first + kAtOnce, first + 2 * kAtOnce) == 0);
  CHECK(mapped.map(job, {first, first + kAtOnce + 1}, allocated));
  CHECK(pages(job, first + kAtOnce + 5 * kPage, first + 2 * kAtOnce) == 0);
  CHECK(pages(job, first, first + 2 * kAtOnce) == kAtOnce / kPage - 3 + 5);
}

TEST_CASE("a thread uses the memory that it has freed, and another thread may free it") {
  waiting::ThreadCachedAllocator<int64_t> memory;
  int64_t* const first = memory.allocate(1);
  memory.deallocate(first, 1);
  int64_t* const second = memory.allocate(1);
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(second == first);
#endif
  std::thread([&] { memory.deallocate(second, 1); }).join();  // and gives it back at its end
  std::vector<int64_t*> many;
  for (int i = 0; i < 20; ++i) many.push_back(memory.allocate(1));
  for (int64_t* one : many) memory.deallocate(one, 1);
  int64_t* const several = memory.allocate(3);
  memory.deallocate(several, 3);
}
