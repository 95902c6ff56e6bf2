#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "completion.h"
#include "smp/comm/communicator.h"
#include "smp/comm/waiting/creator_process.h"
#include "work.h"

namespace smp::pytorch {

// A process group of torch over a Communicator of its own: tensors on the CPU or on the rank's GPU,
// one of each rank, every call asynchronous. Ranks are those of the group. Calls are made in the
// order in which threads come; as everywhere in torch.distributed, all ranks must make them in the
// same order. Errors of the communicator are torch's DistBackendError; arguments that cannot be are
// errors before anything is sent. A process that is forked gets an error from every call, and ends
// nothing.
class SmpBackend final : public c10d::Backend {
 public:
  // Runs what it is given, which waits for threads that may need Python's lock.
  using Outside = std::function<void(const std::function<void()>&)>;

  // `place`: "process group 3", for errors.
  SmpBackend(std::unique_ptr<comm::Communicator> communicator, std::string place,
             std::chrono::milliseconds timeout, Outside outside_python);
  ~SmpBackend() override;

  using Tensors = std::vector<at::Tensor>;
  using TorchWorkPtr = c10::intrusive_ptr<c10d::Work>;

  const std::string getBackendName() const override { return "smp"; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  TorchWorkPtr endCoalescing() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // both sides count from one
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }
  // Also of a failure that no call of this rank has met yet; what it was once the group is shut
  // down.
  c10d::ErrorType getError() override;

  TorchWorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  TorchWorkPtr allreduce_coalesced(Tensors& tensors,
                                   const c10d::AllreduceCoalescedOptions& options) override;
  TorchWorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  TorchWorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;

  TorchWorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                         const c10d::AllgatherOptions& options) override;
  TorchWorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                               const c10d::AllgatherOptions& options) override;
  TorchWorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) override;
  TorchWorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) override;
  TorchWorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ReduceScatterOptions& options) override;
  TorchWorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override;
  TorchWorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                               const c10d::ReduceScatterOptions& options) override;

  TorchWorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                      const c10d::GatherOptions& options) override;
  TorchWorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                       const c10d::ScatterOptions& options) override;
  TorchWorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                        const c10d::AllToAllOptions& options) override;
  TorchWorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                             std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                             const c10d::AllToAllOptions& options) override;

  TorchWorkPtr send(Tensors& tensors, int peer, int tag) override;
  TorchWorkPtr recv(Tensors& tensors, int peer, int tag) override;
  TorchWorkPtr barrier(const c10d::BarrierOptions& options) override;

  // Memory that the ranks of this host read in place: calls on it copy nothing through the segment.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  // Ends the group here and at the peers; calls under way fail.
  void abort() override;
  // Leaves the group in good order once the calls under way are complete, or have failed. In a
  // process that was forked since the group is left alone; so it is by what follows.
  void shutdown() override;
  // The same at the end of the program: aborts the group where calls are still under way.
  void leave();
  // After a failure: the ranks that are left, as a job of its own (Communicator::shrink). This
  // group is to be shut down then.
  comm::Survivors shrink(std::chrono::milliseconds limit);

 private:
  using Body = std::function<void(comm::Communicator&, Steps&)>;

  // Whether calls are under way, of which it looks at `most`: what nobody waits for gives its
  // buffers back here.
  static bool is_busy(Connection& connection, int most);
  // Runs `body`, which calls a communicator, and makes the work of its steps. `like` lies where all
  // tensors of the call do; undefined: there is none.
  TorchWorkPtr start(c10d::OpType type, const char* title, std::chrono::milliseconds timeout,
                     Tensors outputs, const at::Tensor& like, const Body& body);

  // First of all that takes a lock, which may be held for ever where its holder is not.
  void check_home() const;

  const waiting::CreatorProcess home_;
  const std::string place_;
  std::mutex mutex_;                                       // of calls
  std::shared_ptr<Connection> connection_;                 // DeleteInCreator
  c10d::ErrorType last_error_ = c10d::ErrorType::SUCCESS;  // when it was shut down
  const waiting::OwnedByCreator<Completion> completion_;
  const Outside outside_python_;
  std::chrono::milliseconds timeout_;
  uint64_t number_ = 0;
  std::atomic<uint64_t> sequence_{0};  // of collectives
  bool coalescing_ = false;
  // Since startCoalescing(), without those at the front that are well complete: an exception may
  // have left the block for good.
  std::deque<c10::intrusive_ptr<TorchWork>> coalesced_;
};

}  // namespace smp::pytorch
