#include "device_communicator.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "device_calls.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

constexpr std::chrono::milliseconds kMeetingNap{1};

std::vector<int> ranks_of(const Communicator& group) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class DeviceWork final : public Work {
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
  DeviceMemory& memory;
  DeviceCollectivesLibrary& library;
  DeviceWatch watch;
};

struct DeviceCommunicator::Counts {
  struct Sum {
    int64_t calls = 0, wire_bytes = 0;
  };
  std::map<std::pair<std::string, CollectiveOp>, Sum> sums;
};

DeviceCommunicator::DeviceCommunicator(Communicator& inner, Communicator& host,
                                       DeviceMemory& memory, DeviceCollectivesLibrary& library,
                                       std::chrono::milliseconds timeout)
    : WrappedCommunicator(inner),
      session_(new Session{memory, library, {}}),
      guards_(host.split(ranks_of(host))),
      timeout_(timeout),
      counts_(std::make_unique<Counts>()) {}

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> inner,
                                       std::unique_ptr<Communicator> guards,
                                       std::shared_ptr<Session> session,
                                       std::chrono::milliseconds timeout)
    : WrappedCommunicator(std::move(inner)),
      session_(std::move(session)),
      guards_(std::move(guards)),
      timeout_(timeout),
      counts_(std::make_unique<Counts>()) {}

// GPUs may be done before the hosts have heard of each other: whoever left now, its guard not yet
// there, would be taken for one that did not call.
DeviceCommunicator::~DeviceCommunicator() {
  if (!group_) return;
  if (last_guard_ != nullptr && !group_->has_failed() && !unwinding_.now()) {
    try {
      last_guard_->wait();
    } catch (const CommError& error) {
      group_->fail(error);  // ends what GPUs may still be at
    }
  }
  session_->watch.forget(*group_);
}

bool DeviceCommunicator::goes_here(const void* data) const {
  return size() > 1 && session_->memory.holds(data);
}

DeviceGroup& DeviceCommunicator::group() {
  if (group_) return *group_;
  DeviceGroupId id{};
  if (rank() == 0) id = session_->library.fresh_id();
  guards_->broadcast(id.data(), int64_t(id.size()), DType::kU8, 0, "GPUs' group")->wait();
  auto calls = session_->library.join(id, rank(), size());
  const WorkPtr all_join = guards_->barrier("GPUs' group");
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!calls->is_ready()) {
    const bool all_have_come = all_join->done();
    if (all_have_come && std::chrono::steady_clock::now() > deadline) {
      calls->abort();
      throw CommError(CommError::Kind::kTimeout, -1,
                      fmt::format("rank {}: the GPUs of {} ranks did not come together within {} s",
                                  global_rank(rank()), size(), double(timeout_.count()) / 1000));
    }
    std::this_thread::sleep_for(kMeetingNap);
  }
  all_join->wait();
  group_ = std::make_shared<DeviceGroup>(std::move(calls), *guards_);
  return *group_;
}

template <class Start>
WorkPtr DeviceCommunicator::call(CollectiveOp op, int64_t count, DType dtype,
                                 std::string_view label, int root, const Start& start) {
  group().throw_if_failed();
  auto made = std::make_shared<DeviceCall>();
  made->group = group_;
  made->text = fmt::format("rank {}: {} '{}' of {} {} on GPUs", global_rank(rank()), name_of(op),
                           label, count, name_of(dtype));
  const std::string named =
      root < 0 ? fmt::format("{} {} {}", name_of(op), count, name_of(dtype))
               : fmt::format("{} {} {} root {}", name_of(op), count, name_of(dtype), root);
  made->guard = last_guard_ = guards_->barrier(fmt::format("{}: {}", label, named));
  made->timeout = timeout_;
  made->deadline = std::chrono::steady_clock::now() + timeout_;
  try {
    made->end = start(group_->calls());
  } catch (const std::exception& error) {
    group_->fail({CommError::Kind::kAborted, global_rank(rank()),
                  fmt::format("{}: {}", made->text, error.what())});
    group_->throw_if_failed();
  }
  Counts::Sum& sum = counts_->sums[{std::string(label), op}];
  ++sum.calls;
  sum.wire_bytes += wire_bytes(op, size(), rank(), count, bytes_of(dtype), root < 0 ? 0 : root);
  session_->watch.add(made);
  return std::make_shared<DeviceWork>(std::move(made));
}

WorkPtr DeviceCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                       ReduceOp op, std::string_view label) {
  SMP_CHECK_EQ(session_->memory.holds(in), session_->memory.holds(out));
  if (!goes_here(in)) return inner().all_reduce(in, out, count, dtype, op, label);
  return call(CollectiveOp::kAllReduce, count, dtype, label, -1, [&](DeviceCollectives& calls) {
    return calls.all_reduce(in, out, count, dtype, op);
  });
}

WorkPtr DeviceCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                       std::string_view label) {
  SMP_CHECK_EQ(session_->memory.holds(in), session_->memory.holds(out));
  if (!goes_here(in)) return inner().all_gather(in, out, count, dtype, label);
  return call(CollectiveOp::kAllGather, count, dtype, label, -1,
              [&](DeviceCollectives& calls) { return calls.all_gather(in, out, count, dtype); });
}

WorkPtr DeviceCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                           ReduceOp op, std::string_view label) {
  SMP_CHECK_EQ(session_->memory.holds(in), session_->memory.holds(out));
  if (!goes_here(in)) return inner().reduce_scatter(in, out, count, dtype, op, label);
  return call(CollectiveOp::kReduceScatter, count, dtype, label, -1, [&](DeviceCollectives& calls) {
    return calls.reduce_scatter(in, out, count, dtype, op);
  });
}

WorkPtr DeviceCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                      std::string_view label) {
  if (!goes_here(buffer)) return inner().broadcast(buffer, count, dtype, root, label);
  return call(CollectiveOp::kBroadcast, count, dtype, label, root, [&](DeviceCollectives& calls) {
    return calls.broadcast(buffer, count, dtype, root);
  });
}

std::unique_ptr<Communicator> DeviceCommunicator::split(const std::vector<int>& members) {
  return std::unique_ptr<Communicator>(
      new DeviceCommunicator(inner().split(members), guards_->split(members), session_, timeout_));
}

void DeviceCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  guards_->set_timeout(timeout);
  WrappedCommunicator::set_timeout(timeout);
}

void DeviceCommunicator::abort(const std::string& reason) {
  if (group_)
    group_->fail({CommError::Kind::kAborted, global_rank(rank()),
                  fmt::format("rank {} aborted: {}", global_rank(rank()), reason)});
  guards_->abort(reason);
  WrappedCommunicator::abort(reason);
}

std::vector<TrafficCount> DeviceCommunicator::traffic() const {
  std::vector<TrafficCount> counts = WrappedCommunicator::traffic();
  for (const auto& [key, sum] : counts_->sums)
    counts.push_back({key.first, key.second, size(), sum.calls, sum.wire_bytes});
  return counts;
}

}  // namespace smp
