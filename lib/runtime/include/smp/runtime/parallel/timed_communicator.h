#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "smp/comm/wrapped_communicator.h"
#include "smp/plan/mesh/mesh.h"

namespace smp::runinfo {
class ProgressPost;
class StepTracer;
}  // namespace smp::runinfo

namespace smp::parallel {

// Time that a rank has spent waiting for others, and who hears of its calls and waits. One thread.
struct WaitClock {
  std::chrono::nanoseconds waited{0};
  // For reductions, gathers and other collectives: making such calls and waiting for them, which is
  // what computing does not hide of them. Not for messages of stages: there a rank is idle as well.
  std::chrono::nanoseconds exposed{0};
  runinfo::ProgressPost* post = nullptr;  // none: nobody looks
  runinfo::StepTracer* tracer = nullptr;  // none: no timeline of calls and waits

  double seconds() const { return std::chrono::duration<double>(waited).count(); }
  double exposed_seconds() const { return std::chrono::duration<double>(exposed).count(); }
};

// A TimedCommunicator passes everything on to another Communicator, posts and traces each call
// before it does, and adds the time that its Works are waited for to a clock: what a rank reports
// as idle. Thread rule of the Communicator behind it.
class TimedCommunicator final : public comm::WrappedCommunicator {
 public:
  // `clock`, and its tracer, must outlive this object and all Works it has given out. `axis` is
  // that of its group, for the tracer.
  TimedCommunicator(std::unique_ptr<comm::Communicator> inner, WaitClock& clock,
                    mesh::Axis axis = mesh::Axis::kWorld);
  TimedCommunicator(comm::Communicator& inner, WaitClock& clock,
                    mesh::Axis axis = mesh::Axis::kWorld);

  std::unique_ptr<comm::PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                std::string_view label) override;
  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  // The same, of members along an axis.
  std::unique_ptr<comm::Communicator> split_along(mesh::Axis axis, const std::vector<int>& members);

 private:
  comm::WorkPtr pass(const Call& call) override;

  WaitClock& clock_;
  const mesh::Axis axis_;
};

}  // namespace smp::parallel
