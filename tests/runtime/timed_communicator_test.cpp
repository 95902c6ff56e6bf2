#include "smp/runtime/timed_communicator.h"

#include <doctest/doctest.h>

#include <string>

#include "smp/comm/thread_group.h"
#include "smp/plan/progress_page.h"

namespace smp {
namespace {

// Looks at the rank's page when a call arrives.
class PageReader final : public WrappedCommunicator {
 public:
  PageReader(Communicator& inner, const ProgressPage& page)
      : WrappedCommunicator(inner), page_(page) {}

  const std::string& seen() const { return seen_; }
  std::unique_ptr<PeerWindow> open_window(const void*, int64_t, DType, std::string_view) override {
    const RankProgress progress = read_progress(page_).value();
    seen_ = progress.collective + (progress.waiting ? ", waiting" : "");
    return nullptr;
  }
  std::unique_ptr<Communicator> split(const std::vector<int>&) override { return nullptr; }

 private:
  WorkPtr pass(const Call& call) override {
    seen_ = read_progress(page_).value().collective;
    return WrappedCommunicator::pass(call);
  }

  const ProgressPage& page_;
  std::string seen_;
};

}  // namespace

TEST_CASE("a call is posted before it is passed on: a rank that ends in it is known to be there") {
  run_ranks(1, [](Communicator& world) {
    ProgressPage page;
    ProgressPost post(page);
    WaitClock clock;
    clock.post = &post;
    PageReader reader(world, page);
    TimedCommunicator timed(reader, clock);
    float value = 1;
    timed.all_reduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, "data.gradients")->wait();
    CHECK(reader.seen() == "data.gradients");
    timed.open_window(&value, 1, DType::kF32, "setup.window");
    CHECK(reader.seen() == "setup.window, waiting");
    CHECK_FALSE(read_progress(page).value().waiting);
  });
}

}  // namespace smp
