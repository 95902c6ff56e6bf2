#include <doctest/doctest.h>

#include <cstdint>
#include <functional>

#include "comm/any_call.h"
#include "smp/comm/jobs/thread_group.h"

// Calls whose ranks together touch one and a half times as much as the CPUs' last caches have:
// results are written around them; where it is half as much, in some calls, to see whether that is
// quicker. Odd counts, so that parts begin anywhere in a line. The caches are taken for smaller
// ones than some machines have, where all this would take minutes.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

constexpr int64_t kCache = 32 << 20;

void run_with_small_cache(int size, const std::function<void(Communicator&)>& program) {
  run_ranks(size, program, {.cache_bytes = kCache});
}

// Of an element that a call counts.
int64_t touched(CollectiveOp op, int size, bool in_place) {
  switch (op) {
    case CollectiveOp::kAllGather: return 4 * size * (size + 1);
    case CollectiveOp::kReduceScatter: return 4 * size * (size + 1);  // counts a rank's part
    case CollectiveOp::kAllReduce: return 4 * size * (in_place ? 1 : 2);
    default: return 4 * size;
  }
}

}  // namespace

TEST_CASE("calls that fill the cache give what others do, in place and not, in both memories") {
  const int64_t bytes = kCache * 3 / 2;
  for (const int size : {2, 4})
    run_with_small_cache(size, [&](Communicator& comm) {
      SymmetricRoom room(comm);
      AnyCall call;
      for (const CollectiveOp op : {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
                                    CollectiveOp::kReduceScatter, CollectiveOp::kBroadcast})
        for (const bool is_symmetric : {false, true})
          for (const bool in_place : {false, true}) {
            call.op = op;
            if (in_place && !call.can_be_in_place()) continue;
            call.in_place = in_place;
            call.count = (bytes / touched(op, size, in_place) + 1) | 1;
            call.room = is_symmetric ? &room : nullptr;
            ++call.salt;
            CHECK_MESSAGE(wrong_elements(comm, call) == 0, text_of(call));
          }
    });
}

TEST_CASE("calls that fill half of the cache give what others do, by the usual way and the other") {
  constexpr int kCalls = 16;  // of which the last ones try it
  const int64_t bytes = kCache * 3 / 4;
  for (const int size : {2, 4})
    run_with_small_cache(size, [&](Communicator& comm) {
      SymmetricRoom room(comm);
      AnyCall call;
      for (const CollectiveOp op :
           {CollectiveOp::kAllReduce, CollectiveOp::kAllGather, CollectiveOp::kReduceScatter})
        for (const bool is_symmetric : {false, true})
          for (int i = 0; i < kCalls; ++i) {
            call.op = op;
            call.count = (bytes / touched(op, size, false)) | 1;
            call.room = is_symmetric ? &room : nullptr;
            ++call.salt;
            CHECK_MESSAGE(wrong_elements(comm, call) == 0, text_of(call));
          }
    });
}
