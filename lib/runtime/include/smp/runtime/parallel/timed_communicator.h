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

// The time that a rank has spent waiting for others, and the observers of its calls and waits. One
// thread.
struct WaitClock {
  std::chrono::nanoseconds waited{0};
  // Exposed communication: the time to start collectives and to wait for them, which computing does
  // not hide. Messages between stages are not counted: a rank may wait for them because it is idle.
  std::chrono::nanoseconds exposed{0};
  runinfo::ProgressPost* post = nullptr;  // none: nobody looks
  runinfo::StepTracer* tracer = nullptr;  // none: no timeline of calls and waits

  double seconds() const { return std::chrono::duration<double>(waited).count(); }
  double exposed_seconds() const { return std::chrono::duration<double>(exposed).count(); }
};

// A TimedCommunicator forwards every call to another Communicator. It posts and traces each call
// first, and adds the time of waiting for its Works to a clock, which a rank reports as idle time.
// Thread rule of the Communicator behind it.
class TimedCommunicator final : public comm::WrappedCommunicator {
 public:
  // `clock` and its tracer must outlive this object and all Works that it returned. `axis` is the
  // mesh axis of the group, for the tracer.
  TimedCommunicator(std::unique_ptr<comm::Communicator> inner, WaitClock& clock,
                    mesh::Axis axis = mesh::Axis::kWorld);
  TimedCommunicator(comm::Communicator& inner, WaitClock& clock,
                    mesh::Axis axis = mesh::Axis::kWorld);

  std::unique_ptr<comm::PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                std::string_view label) override;
  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  // The same for members along `axis`.
  std::unique_ptr<comm::Communicator> split_along(mesh::Axis axis, const std::vector<int>& members);

 private:
  comm::WorkPtr pass(const Call& call) override;

  WaitClock& clock_;
  const mesh::Axis axis_;
};

}  // namespace smp::parallel
