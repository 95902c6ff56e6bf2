#include "progress/long_call.h"

#include <doctest/doctest.h>

using std::chrono::microseconds;
using std::chrono::milliseconds;

using namespace smp;

namespace {

const progress::LongCall::Time kBegin = progress::LongCall::Time() + std::chrono::hours(1);
constexpr microseconds kShort = progress::LongCall::kAtOnce / 2;
constexpr milliseconds kLong{5};

bool was_left_alone(const progress::LongCall& call) {
  return call.was_left_alone(kBegin + 10 * kLong);
}

}  // namespace

TEST_CASE("a long call that nobody waits for is left alone, but not before some time is over") {
  const progress::LongCall::Span waited{0};
  progress::LongCall call;
  CHECK_FALSE(call.is_left());
  call.leave(kBegin, waited);
  CHECK(call.is_left());
  CHECK_FALSE(call.was_left_alone(kBegin + kShort));
  CHECK(call.was_left_alone(kBegin + kLong));
}

TEST_CASE("a long call is wanted at once by who waits for it soon, whoever that is") {
  const progress::LongCall::Span waited{0}, of_another{kLong};
  for (const progress::LongCall::Span* const whose : {&waited, &of_another}) {
    progress::LongCall soon, late;
    soon.leave(kBegin, waited);
    soon.wait(kBegin + kShort, *whose);
    CHECK_FALSE(was_left_alone(soon));
    late.leave(kBegin, waited);
    late.wait(kBegin + kLong, *whose);
    CHECK(was_left_alone(late));
  }
}

TEST_CASE("a long call is wanted at once if its maker did nothing but wait for others before") {
  progress::LongCall::Span waited{kLong};
  progress::LongCall wanted, alone;
  wanted.leave(kBegin, waited);
  alone.leave(kBegin, waited);
  waited += kLong;
  wanted.wait(kBegin + kLong + kShort, waited);
  CHECK_FALSE(was_left_alone(wanted));
  alone.wait(kBegin + 2 * kLong, waited);
  CHECK(was_left_alone(alone));
}
