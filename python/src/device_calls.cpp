#include "device_calls.h"

#include <stdexcept>
#include <utility>

#include "poll_interval.h"
#include "smp/comm/device/staged_communicator.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::pytorch {
namespace {

// A device's memory during the calls of it; for the others there is none.
class MemoryOfCalls final : public device::DeviceMemory {
 public:
  explicit MemoryOfCalls(device::DeviceMemory& memory) : memory_(memory) {}
  bool on_device = false;

  bool holds(const void* data) const override { return on_device && memory_.holds(data); }
  void pin(void* memory, int64_t bytes) override { memory_.pin(memory, bytes); }
  void unpin(void* memory) override { memory_.unpin(memory); }
  device::CopyPtr until_now() override { return memory_.until_now(); }
  device::CopyPtr start_to_host(void* to, const void* from, int64_t bytes,
                                device::Copy& behind) override {
    return memory_.start_to_host(to, from, bytes, behind);
  }
  device::CopyPtr start_to_device(void* to, const void* from, int64_t bytes,
                                  device::Copy& behind) override {
    return memory_.start_to_device(to, from, bytes, behind);
  }

 private:
  device::DeviceMemory& memory_;
};

}  // namespace

// Whoever finds it done, or waits for it, comes behind its result on the device.
class DeviceCalls::Relayed final : public comm::Work {
 public:
  bool done() override {
    std::lock_guard lock(mutex_);
    return look();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return is_over_; });
    look();
  }
  void end(std::exception_ptr error, std::unique_ptr<Device::Point> behind) {
    std::lock_guard lock(mutex_);
    is_over_ = true;
    error_ = std::move(error);
    behind_ = std::move(behind);
    ended_.notify_all();
  }

 private:
  bool look() const {
    if (!is_over_) return false;
    if (error_) std::rethrow_exception(error_);
    if (behind_) behind_->follow();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::exception_ptr error_;
  std::unique_ptr<Device::Point> behind_;
};

DeviceCalls::DeviceCalls(comm::Communicator& communicator, std::unique_ptr<Device> device)
    : comm::WrappedCommunicator(communicator),
      device_(std::move(device)),
      memory_(device_->memory(), device::read_gdr_use()),
      thread_(system::start_without_signals([this] { run(); })) {}

DeviceCalls::~DeviceCalls() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    filled_.notify_one();
  }
  thread_.join();
}

comm::WorkPtr DeviceCalls::pass(const Call& call) {
  Job job;
  job.call = call;
  job.label = call.label;
  return add(std::move(job));
}

void DeviceCalls::set_timeout(std::chrono::milliseconds timeout) {
  Job job;
  job.timeout = timeout;
  add(std::move(job));
}

comm::WorkPtr DeviceCalls::add(Job job) {
  const auto work = job.work = std::make_shared<Relayed>();
  if (on_device_) job.after = device_->now();
  std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(job));
  filled_.notify_one();
  return work;
}

void DeviceCalls::run() {
  MemoryOfCalls memory(memory_);
  device::StagedCommunicator staged(inner(), memory);
  std::exception_ptr broken;  // the device cannot be used at all
  try {
    device_->enter();
  } catch (...) {
    broken = std::current_exception();
  }
  const auto begin = [&](Job& job) {
    try {
      if (broken) std::rethrow_exception(broken);
      memory.on_device = job.after != nullptr;
      if (job.after) job.after->follow();
      if (job.timeout) {
        staged.set_timeout(*job.timeout);
      } else {
        job.call.label = job.label;
        job.under_way = make(job.call, staged);
      }
    } catch (...) {
      job.work->end(std::current_exception(), nullptr);
      job.work = nullptr;
    }
  };
  const auto is_over = [&](Job& job) {
    if (!job.work) return true;
    try {
      if (job.under_way && !job.under_way->done()) return false;
      job.work->end(nullptr, job.after ? device_->now() : nullptr);
    } catch (...) {
      job.work->end(std::current_exception(), nullptr);
    }
    return true;
  };

  std::vector<Job> jobs;  // that are not over
  PollInterval interval;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto is_due = [&] { return stopping_ || !arrived_.empty(); };
    if (jobs.empty()) {
      filled_.wait(lock, is_due);
      interval.reset();
    } else {
      filled_.wait_for(lock, interval.length(), [&] { return !arrived_.empty(); });
    }
    const size_t first = jobs.size();
    for (Job& job : arrived_) jobs.push_back(std::move(job));
    arrived_.clear();
    if (jobs.empty()) return;
    lock.unlock();
    for (size_t i = first; i < jobs.size(); ++i) begin(jobs[i]);
    if (std::erase_if(jobs, is_over) > 0) interval.reset();
    lock.lock();
  }
}

std::unique_ptr<comm::Communicator> DeviceCalls::split(const std::vector<int>& /*members*/) {
  throw std::logic_error("a process group of torch is not split");
}

}  // namespace smp::pytorch
