#include "gpu/device_communicator.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <utility>

#include "gpu/device_calls.h"
#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"

namespace smp::gpu {
namespace {

std::vector<int> ranks_of(const comm::Communicator& group) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class DeviceWork final : public comm::Work {
 public:
  explicit DeviceWork(std::shared_ptr<DeviceCall> call) : call_(std::move(call)) {}

  bool done() override {
    call_->group->throw_if_failed();
    if (!call_->end->done()) return false;
    call_->end->follow();
    return true;
  }
  void wait() override {
    call_->group->throw_if_failed();
    call_->end->follow();
  }

 private:
  const std::shared_ptr<DeviceCall> call_;
};

}  // namespace

struct DeviceCommunicator::Session {
  device::DeviceMemory& memory;
  DeviceCollectivesLibrary& library;
  DeviceWatchdog watch;
};

struct DeviceCommunicator::Counts {
  struct Sum {
    int64_t calls = 0, wire_bytes = 0;
  };
  std::map<std::pair<std::string, mesh::CollectiveOp>, Sum> sums;
};

DeviceCommunicator::DeviceCommunicator(comm::Communicator& inner, comm::Communicator& host,
                                       device::DeviceMemory& memory,
                                       DeviceCollectivesLibrary& library,
                                       std::chrono::milliseconds timeout)
    : comm::WrappedCommunicator(inner),
      session_(new Session{memory, library, DeviceWatchdog(library)}),
      guards_(host.split(ranks_of(host))),
      timeout_(timeout),
      counts_(std::make_unique<Counts>()) {}

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<comm::Communicator> inner,
                                       std::unique_ptr<comm::Communicator> guards,
                                       std::shared_ptr<Session> session,
                                       std::chrono::milliseconds timeout)
    : comm::WrappedCommunicator(std::move(inner)),
      session_(std::move(session)),
      guards_(std::move(guards)),
      timeout_(timeout),
      counts_(std::make_unique<Counts>()) {}

// GPUs may finish before the guards of their hosts do. A rank that left now, with its guard
// unfinished, would look to its peers like one that did not call.
DeviceCommunicator::~DeviceCommunicator() {
  if (!group_) return;
  if (last_guard_ != nullptr && !group_->has_failed() && !unwinding_.now()) {
    try {
      last_guard_->wait();
    } catch (const comm::CommError& error) {
      group_->fail(error);  // ends what GPUs may still be at
    }
  }
  session_->watch.forget(*group_);
}

bool DeviceCommunicator::goes_here(const Call& call) const {
  const device::DeviceMemory& memory = session_->memory;
  switch (call.op) {
    case mesh::CollectiveOp::kAllReduce:
    case mesh::CollectiveOp::kAllGather:
    case mesh::CollectiveOp::kReduceScatter:
      SMP_CHECK_EQ(memory.holds(call.in), memory.holds(call.out));
      [[fallthrough]];
    case mesh::CollectiveOp::kBroadcast: return size() > 1 && memory.holds(call.out);
    default: return false;
  }
}

void DeviceCommunicator::connect() {
  DeviceGroupId id{};
  if (rank() == 0) id = session_->library.fresh_id();
  guards_->broadcast(id.data(), int64_t(id.size()), DType::kU8, 0, "GPUs' group")->wait();
  auto group = std::make_shared<DeviceGroup>(session_->library.join(id, rank(), size()), *guards_);
  {
    std::lock_guard guard(joining_);
    group_ = std::move(group);
  }
  start(fmt::format("rank {}: connecting the GPUs of {} ranks", global_rank(rank()), size()),
        guards_->barrier("GPUs' group"), [](DeviceCollectives&) {});
}

void DeviceCommunicator::ask(const Call& call, DeviceCollectives& on) {
  const auto& [op, in, out, count, dtype, reduce_op, root, label] = call;
  switch (op) {
    case mesh::CollectiveOp::kAllReduce: return on.all_reduce(in, out, count, dtype, reduce_op);
    case mesh::CollectiveOp::kAllGather: return on.all_gather(in, out, count, dtype);
    case mesh::CollectiveOp::kReduceScatter:
      return on.reduce_scatter(in, out, count, dtype, reduce_op);
    case mesh::CollectiveOp::kBroadcast: return on.broadcast(out, count, dtype, root);
    default: throw std::logic_error("not a call of GPUs");
  }
}

// The watchdog watches the call from the beginning, because the library may wait for a peer before
// the device does.
std::shared_ptr<DeviceCall> DeviceCommunicator::start(
    const std::string& text, comm::WorkPtr guard,
    const std::function<void(DeviceCollectives&)>& call) {
  auto made = std::make_shared<DeviceCall>();
  made->group = group_;
  made->text = text;
  made->guard = std::move(guard);
  made->timeout = timeout_;
  made->deadline = std::chrono::steady_clock::now() + timeout_;
  session_->watch.add(made);
  try {
    made->end = group_->start(call);
    made->has_end.store(true);
  } catch (const std::exception& error) {
    group_->fail({comm::CommError::Kind::kAborted, global_rank(rank()),
                  fmt::format("{}: {}", text, error.what())});
    group_->throw_if_failed();
  }
  return made;
}

comm::WorkPtr DeviceCommunicator::pass(const Call& call) {
  if (!goes_here(call)) return comm::WrappedCommunicator::pass(call);
  const auto& [op, in, out, count, dtype, reduce_op, root, label] = call;
  if (!group_) connect();
  group_->throw_if_failed();
  const std::string named =
      op == mesh::CollectiveOp::kBroadcast
          ? fmt::format("{} {} {} root {}", name_of(op), count, name_of(dtype), root)
          : fmt::format("{} {} {}", name_of(op), count, name_of(dtype));
  last_guard_ = guards_->barrier(fmt::format("{}: {}", label, named));
  auto made = start(fmt::format("rank {}: {} '{}' of {} {} on GPUs", global_rank(rank()),
                                name_of(op), label, count, name_of(dtype)),
                    last_guard_, [&](DeviceCollectives& calls) { ask(call, calls); });
  Counts::Sum& sum = counts_->sums[{std::string(label), op}];
  ++sum.calls;
  sum.wire_bytes += mesh::wire_bytes(op, size(), rank(), count, bytes_of(dtype), root);
  return std::make_shared<DeviceWork>(std::move(made));
}

std::unique_ptr<comm::Communicator> DeviceCommunicator::split(const std::vector<int>& members) {
  return std::unique_ptr<comm::Communicator>(
      new DeviceCommunicator(inner().split(members), guards_->split(members), session_, timeout_));
}

void DeviceCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  guards_->set_timeout(timeout);
  comm::WrappedCommunicator::set_timeout(timeout);
}

void DeviceCommunicator::abort(const std::string& reason) {
  std::shared_ptr<DeviceGroup> group;
  {
    std::lock_guard guard(joining_);
    group = group_;
  }
  if (group) {
    session_->library.use_on_this_thread();
    group->fail({comm::CommError::Kind::kAborted, global_rank(rank()),
                 fmt::format("rank {} aborted: {}", global_rank(rank()), reason)});
  }
  guards_->abort(reason);
  comm::WrappedCommunicator::abort(reason);
}

std::vector<comm::TrafficCount> DeviceCommunicator::traffic() const {
  std::vector<comm::TrafficCount> counts = comm::WrappedCommunicator::traffic();
  for (const auto& [key, sum] : counts_->sums)
    counts.push_back({key.first, key.second, size(), sum.calls, sum.wire_bytes});
  return counts;
}

}  // namespace smp::gpu
