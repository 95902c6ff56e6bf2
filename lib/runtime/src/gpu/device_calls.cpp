#include "gpu/device_calls.h"

#include <fmt/format.h>

#include <utility>

#include "smp/plan/system/signals_blocked.h"

namespace smp::gpu {
namespace {

// The watchdog's polling interval: the delay until a failure is reported. Calls that succeed do not
// wait for it.
constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr std::chrono::microseconds kNap{50};

}  // namespace

template <class Ask>
auto DeviceGroup::ask(const Ask& what) {
  std::lock_guard guard(asking_);
  throw_if_failed();
  return what(*calls_);
}

device::CopyPtr DeviceGroup::start(const std::function<void(DeviceCollectives&)>& call) {
  const auto is_ready = [](DeviceCollectives& calls) { return calls.is_ready(); };
  ask(call);
  while (!ask(is_ready)) std::this_thread::sleep_for(kNap);
  return ask([](DeviceCollectives& calls) { return calls.until_now(); });
}

std::string DeviceGroup::error() {
  return ask([](DeviceCollectives& calls) { return calls.error(); });
}

void DeviceGroup::throw_if_failed() const {
  std::lock_guard guard(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool DeviceGroup::has_failed() const {
  std::lock_guard guard(mutex_);
  return failure_ != nullptr;
}

void DeviceGroup::fail(const comm::CommError& error) {
  {
    std::lock_guard guard(mutex_);
    if (failure_) return;
    failure_ = std::make_exception_ptr(error);
  }
  {
    std::lock_guard guard(asking_);
    calls_->abort();
  }
  guards_.abort(error.what());
}

bool DeviceCall::is_over() const {
  if (group->has_failed()) return true;
  try {
    if (has_end.load() && end->done()) return true;
    const bool all_have_called = guard->done();
    if (const std::string error = group->error(); !error.empty())
      throw comm::CommError(comm::CommError::Kind::kAborted, -1,
                            fmt::format("{}: {}", text, error));
    if (all_have_called && std::chrono::steady_clock::now() > deadline)
      throw comm::CommError(comm::CommError::Kind::kTimeout, -1,
                            fmt::format("{} timed out after {} s, although all ranks called it",
                                        text, double(timeout.count()) / 1000));
    return false;
  } catch (const comm::CommError& error) {
    group->fail(error);
  } catch (const std::exception& error) {
    group->fail({comm::CommError::Kind::kAborted, -1, fmt::format("{}: {}", text, error.what())});
  }
  return true;
}

DeviceWatchdog::~DeviceWatchdog() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceWatchdog::add(std::shared_ptr<DeviceCall> call) {
  std::lock_guard guard(mutex_);
  arrived_.push_back(std::move(call));
  if (!thread_.joinable()) thread_ = system::start_without_signals([this] { run(); });
  changed_.notify_one();
}

void DeviceWatchdog::forget(const DeviceGroup& group) {
  const auto is_of_group = [&](const auto& call) { return call->group.get() == &group; };
  std::lock_guard looking(looking_);
  std::lock_guard guard(mutex_);
  std::erase_if(calls_, is_of_group);
  std::erase_if(arrived_, is_of_group);
}

void DeviceWatchdog::run() {
  library_.use_on_this_thread();
  for (bool is_idle = true;;) {
    {
      std::unique_lock lock(mutex_);
      const auto is_called = [&] { return stopping_ || !arrived_.empty(); };
      if (is_idle) {
        changed_.wait(lock, is_called);
      } else {
        changed_.wait_for(lock, kBetweenLooks, [&] { return stopping_; });
      }
      if (stopping_) return;
    }
    std::lock_guard looking(looking_);
    {
      std::lock_guard guard(mutex_);
      for (auto& call : arrived_) calls_.push_back(std::move(call));
      arrived_.clear();
    }
    std::erase_if(calls_, [](const auto& call) { return call->is_over(); });
    is_idle = calls_.empty();
  }
}

}  // namespace smp::gpu
