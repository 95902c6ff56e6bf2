#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "device_calls.h"
#include "smp/comm/communicator.h"
#include "smp/comm/waiting/creator_process.h"

namespace smp::pytorch {

class TorchWork;
class Completion;

// Throws torch's DistBackendError: "smp: timeout in process group 3: rank 0: ...".
[[noreturn]] void throw_torch_error(comm::CommError::Kind kind, const std::string& place,
                                    const std::string& text);

// What a call of torch comes down to.
struct Steps {
  std::vector<comm::WorkPtr> parts;          // calls of the communicator
  std::vector<at::Tensor> buffers;           // that live until they are complete
  std::vector<std::function<void()>> after;  // then, in this order
  Device* device = nullptr;                  // that it is of; null: of the host
};

// A communicator and the works under way on it: these keep their buffers whether or not anybody
// keeps the work. Any thread.
struct Connection {
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<DeviceCalls> on_device;  // from the first tensor on a device on
  // What the next call goes to, whose tensors lie where `like` does. Under the backend's mutex.
  comm::Communicator& calls_for(const at::Tensor& like);
  std::string place;                        // "process group 3", for errors
  std::atomic<bool> has_said_calls{false};  // after its first failure, to standard error
  std::mutex mutex;
  std::map<uint64_t, c10::intrusive_ptr<TorchWork>> under_way;  // by number
  uint64_t looked_at = 0;  // the number of the last that was asked whether it is complete
};

// torch's handle of a call. Whoever waits makes progress himself; a future needs a thread that
// completes it (Completion). Any thread. In a process that was forked while it was under way it is
// an error to ask for it.
class TorchWork final : public c10d::Work {
 public:
  TorchWork(std::shared_ptr<Connection> connection, Completion& completion, uint64_t number,
            c10d::OpType type, const char* title, Steps steps, std::vector<at::Tensor> outputs);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override;
  uint64_t getSequencenumber() const override { return number_; }

  bool settle_now();     // whether it is complete; never blocks
  bool is_well() const;  // complete without an error, as far as anybody has looked
  void settle();         // returns when it is, well or not

 private:
  void check_home() const;
  void complete(std::exception_ptr error);
  void say_calls() const;
  std::exception_ptr as_torch_error(const std::exception_ptr& error) const;
  void finish_on_device();
  std::vector<c10::Device> devices() const;  // of a future

  const waiting::CreatorProcess home_;
  const uint64_t number_;
  Completion& completion_;
  std::vector<comm::WorkPtr> parts_;
  const std::vector<at::Tensor> outputs_;
  const std::string place_;

  std::mutex completing_;  // what follows, until it is settled
  std::shared_ptr<Connection> connection_;
  std::vector<at::Tensor> buffers_;
  std::vector<std::function<void()>> after_;
  Device* const device_;                  // null: it is of the host
  std::unique_ptr<Device::Point> begin_;  // what the caller had asked the device for
  std::unique_ptr<Device::Point> end_;    // its results; once it is settled
  std::atomic<bool> settled_{false};

  bool future_due_ = false;  // under the mutex of the base, as is the future
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Works that were made between startCoalescing() and endCoalescing(), as a call of the
// communicator.
class Coalesced final : public smp::comm::Work {
 public:
  explicit Coalesced(c10::intrusive_ptr<TorchWork> work) : work_(std::move(work)) {}
  bool done() override;
  void wait() override { work_->wait(kNoTimeout); }

 private:
  const c10::intrusive_ptr<TorchWork> work_;
};

}  // namespace smp::pytorch
