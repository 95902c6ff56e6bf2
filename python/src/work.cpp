#include "work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>

#include <cstdio>

#include "call_logs.h"
#include "completion.h"
#include "poll_interval.h"

namespace smp::pytorch {
namespace {

// What is chosen for a device is the same for all groups of a process, so the first one says it.
void say_once(const std::string& text) {
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true)) std::fputs(c10::str("smp: ", text, "\n").c_str(), stderr);
}

}  // namespace

void throw_torch_error(comm::CommError::Kind kind, const std::string& place,
                       const std::string& text) {
  const char* what = kind == comm::CommError::Kind::kTimeout    ? "timeout"
                     : kind == comm::CommError::Kind::kPeerLost ? "lost peer"
                     : kind == comm::CommError::Kind::kMismatch ? "mismatch"
                                                                : "abort";
  throw c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)},
                              c10::str("smp: ", what, " in ", place, ": ", text));
}

TorchWork::TorchWork(std::shared_ptr<Connection> connection, Completion& completion,
                     uint64_t number, c10d::OpType type, const char* title, Steps steps,
                     std::vector<at::Tensor> outputs)
    : Work(connection->communicator->rank(), type, title),
      number_(number),
      completion_(completion),
      parts_(std::move(steps.parts)),
      outputs_(std::move(outputs)),
      place_(connection->place),
      connection_(std::move(connection)),
      buffers_(std::move(steps.buffers)),
      after_(std::move(steps.after)),
      device_(steps.device),
      begin_(device_ != nullptr ? device_->now() : nullptr) {}

comm::Communicator& Connection::calls_for(const at::Tensor& like) {
  if (!on_device) {
    auto device = open_device_of(like);
    if (!device) return *communicator;
    on_device = std::make_unique<DeviceCalls>(*communicator, std::move(device));
    say_once(c10::str("rank ", communicator->rank(), " of ", place, ": tensors on ", like.device(),
                      "; ", on_device->memory().text()));
  }
  on_device->set_on_device(like.defined() && on_device->device().holds(like));
  return *on_device;
}

bool TorchWork::isCompleted() { return settle_now(); }

void TorchWork::check_home() const {
  try {
    home_.check(rank_);
  } catch (const comm::CommError& error) {
    throw_torch_error(error.kind, place_, error.what());
  }
}

bool TorchWork::settle_now() {
  if (settled_.load()) return true;
  check_home();
  std::shared_ptr<Connection> alive;
  {
    std::lock_guard guard(completing_);
    alive = connection_;
  }
  std::exception_ptr error;
  for (const comm::WorkPtr& part : parts_) {
    try {
      if (!part->done()) return false;
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  complete(error);
  return true;
}

// This thread is behind all that was copied.
void TorchWork::finish_on_device() {
  end_ = device_->now();
  for (const at::Tensor& buffer : buffers_) device_->keep(buffer);
  for (const at::Tensor& output : outputs_) device_->keep(output);
}

std::vector<c10::Device> TorchWork::devices() const {
  std::vector<c10::Device> devices;
  if (!outputs_.empty() && !outputs_.front().device().is_cpu())
    devices.push_back(outputs_.front().device());
  return devices;
}

bool TorchWork::is_well() const { return settled_.load() && !exception(); }

void TorchWork::settle() {
  if (settled_.load()) return;
  check_home();
  std::shared_ptr<Connection> alive;
  {
    std::lock_guard guard(completing_);
    alive = connection_;
  }
  std::exception_ptr error;
  for (const comm::WorkPtr& part : parts_) {  // each of them: none may use its buffers afterwards
    try {
      part->wait();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  complete(error);
}

void TorchWork::complete(std::exception_ptr error) {
  c10::intrusive_ptr<TorchWork> self;  // let go last
  {
    std::lock_guard guard(completing_);
    if (settled_.load()) return;
    if (!error) {
      try {
        const at::NoGradGuard no_grad;
        if (begin_) begin_->follow();
        for (const auto& step : after_) step();
        if (device_ != nullptr) finish_on_device();
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (error) error = as_torch_error(error);
    after_.clear();
    buffers_.clear();
    {
      std::lock_guard under_way(connection_->mutex);
      const auto place = connection_->under_way.find(number_);
      if (place != connection_->under_way.end()) {
        self = std::move(place->second);
        connection_->under_way.erase(place);
      }
    }
    finish(error);
    connection_.reset();
    settled_.store(true);
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard guard(mutex_);
    future_due_ = true;
    future = future_;
  }
  if (!future) return;
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
}

// What an error cannot hold; an abort is somebody's wish.
void TorchWork::say_calls() const {
  if (connection_->has_said_calls.exchange(true)) return;
  const auto log = connection_->communicator->call_log();
  if (log == nullptr) return;
  std::fputs(c10::str("smp: ", place_, ": ", log->text(kCallsSaid)).c_str(), stderr);
}

std::exception_ptr TorchWork::as_torch_error(const std::exception_ptr& error) const {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const comm::CommError& e) {
      if (e.kind != comm::CommError::Kind::kAborted) say_calls();
      throw_torch_error(e.kind, place_, e.what());
    }
  } catch (...) {
    return std::current_exception();
  }
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (PollInterval interval; !settle_now(); interval.sleep()) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      throw_torch_error(
          comm::CommError::Kind::kTimeout, place_,
          c10::str(c10d::opTypeToString(opType_), " #", number_, " is not complete after ",
                   timeout.count(), " ms of waiting; the call continues"));
    }
  } else {
    settle();
  }
  {
    std::lock_guard guard(mutex_);
    if (exception_) std::rethrow_exception(exception_);
  }
  if (end_) end_->follow();
  return true;
}

void TorchWork::abort() {
  check_home();
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard guard(completing_);
    connection = connection_;
  }
  if (connection) connection->communicator->abort("torch called Work.abort()");
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  if (!settled_.load()) check_home();
  bool due = false;
  {
    std::lock_guard guard(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices());
    due = future_due_;
  }
  if (!due) {
    completion_.watch(c10::intrusive_ptr<TorchWork>::reclaim_copy(this));
  } else if (const std::exception_ptr error = exception()) {
    future_->setError(error);
  } else {
    if (end_) end_->follow();
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

std::vector<at::Tensor> TorchWork::result() { return outputs_; }

bool Coalesced::done() {
  if (!work_->settle_now()) return false;
  if (const std::exception_ptr error = work_->exception()) std::rethrow_exception(error);
  return true;
}

}  // namespace smp::pytorch
