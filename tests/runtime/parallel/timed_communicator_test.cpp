#include "smp/runtime/parallel/timed_communicator.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/runinfo/progress_page.h"

namespace smp {
namespace {

// Looks at the rank's page when a call arrives.
class PageReader final : public comm::WrappedCommunicator {
 public:
  PageReader(comm::Communicator& inner, const runinfo::ProgressPage& page)
      : comm::WrappedCommunicator(inner), page_(page) {}

  const std::string& seen() const { return seen_; }
  std::unique_ptr<comm::PeerWindow> open_window(const void*, int64_t, DType,
                                                std::string_view) override {
    const runinfo::RankProgress progress = runinfo::read_progress(page_).value();
    seen_ = progress.collective + (progress.waiting ? ", waiting" : "");
    return nullptr;
  }
  std::unique_ptr<comm::Communicator> split(const std::vector<int>&) override { return nullptr; }

 private:
  comm::WorkPtr pass(const Call& call) override {
    seen_ = runinfo::read_progress(page_).value().collective;
    return comm::WrappedCommunicator::pass(call);
  }

  const runinfo::ProgressPage& page_;
  std::string seen_;
};

}  // namespace

TEST_CASE("a call is posted before it is passed on: a rank that ends in it is known to be there") {
  jobs::run_ranks(1, [](comm::Communicator& world) {
    runinfo::ProgressPage page;
    runinfo::ProgressPost post(page);
    parallel::WaitClock clock;
    clock.post = &post;
    PageReader reader(world, page);
    parallel::TimedCommunicator timed(reader, clock);
    float value = 1;
    timed.all_reduce(&value, &value, 1, DType::kF32, comm::ReduceOp::kSum, "data.gradients")
        ->wait();
    CHECK(reader.seen() == "data.gradients");
    timed.open_window(&value, 1, DType::kF32, "setup.window");
    CHECK(reader.seen() == "setup.window, waiting");
    CHECK_FALSE(runinfo::read_progress(page).value().waiting);
  });
}

TEST_CASE("what computing does not hide: making collectives and waiting for them, not messages") {
  // Every call takes its time where it is made, and where it is waited for.
  class SlowCalls final : public comm::WrappedCommunicator {
   public:
    explicit SlowCalls(comm::Communicator& inner) : comm::WrappedCommunicator(inner) {}
    std::unique_ptr<comm::Communicator> split(const std::vector<int>&) override { return nullptr; }

   private:
    class SlowWork final : public comm::Work {
     public:
      bool done() override { return true; }
      void wait() override { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
    };
    comm::WorkPtr pass(const Call&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::make_shared<SlowWork>();
    }
  };
  jobs::run_ranks(1, [](comm::Communicator& world) {
    parallel::WaitClock clock;
    SlowCalls slow(world);
    parallel::TimedCommunicator timed(slow, clock);
    float value = 1;
    const comm::WorkPtr sent = timed.send(&value, 1, DType::kF32, 0, "a");
    CHECK(clock.exposed.count() == 0);
    sent->wait();
    CHECK(clock.exposed.count() == 0);
    CHECK(clock.waited >= std::chrono::milliseconds(2));
    clock.waited = {};
    const comm::WorkPtr sum =
        timed.all_reduce(&value, &value, 1, DType::kF32, comm::ReduceOp::kSum, "b");
    CHECK(clock.exposed >= std::chrono::milliseconds(1));
    CHECK(clock.waited.count() == 0);
    sum->wait();
    CHECK(clock.exposed >= std::chrono::milliseconds(3));
    CHECK(clock.waited >= std::chrono::milliseconds(2));
    CHECK(clock.exposed_seconds() == doctest::Approx(double(clock.exposed.count()) * 1e-9));
  });
}

}  // namespace smp
