#include "smp/comm/device/staged_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/staging.h"
#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"

namespace smp::device {
namespace {

void* byte_at(const void* data, int64_t offset) {
  if (data == nullptr) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

}  // namespace

// In whole multiples of `unit` elements; calls that are seldom long are not cut.
StagedCommunicator::Cuts StagedCommunicator::cut(const Call& call) {
  int64_t count = call.count, unit = 1, parts = 1;
  const int64_t element_bytes = bytes_of(call.dtype);
  switch (call.op) {
    case mesh::CollectiveOp::kAllReduce: unit = size(); [[fallthrough]];
    case mesh::CollectiveOp::kBroadcast: parts = mesh::parts_by_host(count * element_bytes); break;
    case mesh::CollectiveOp::kReduceScatter: count /= size(); [[fallthrough]];
    case mesh::CollectiveOp::kAllGather:
      parts = mesh::parts_by_host(count * size() * element_bytes);
      break;
    default: break;
  }
  Cuts cuts{std::string(call.label), {}};
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = mesh::part_begin(count / unit, parts, i) * unit;
    const int64_t end = i + 1 < parts ? mesh::part_begin(count / unit, parts, i + 1) * unit : count;
    cuts.parts.push_back({begin, end - begin});
  }
  if (parts > 1) {
    cuts.label = fmt::format("{}, {} in {} parts", call.label, call.count, parts);
    wholes_.try_emplace({cuts.label, call.op}, Whole{std::string(call.label), parts});
  }
  return cuts;
}

std::vector<comm::TrafficCount> StagedCommunicator::traffic() const {
  std::map<std::pair<std::string, mesh::CollectiveOp>, comm::TrafficCount> sums;
  for (comm::TrafficCount count : comm::WrappedCommunicator::traffic()) {
    if (const auto found = wholes_.find({count.label, count.op}); found != wholes_.end()) {
      count.label = found->second.label;
      count.calls /= found->second.parts;
    }
    const auto [sum, is_first] = sums.try_emplace({count.label, count.op}, count);
    if (is_first) continue;
    sum->second.calls += count.calls;
    sum->second.wire_bytes += count.wire_bytes;
  }
  std::vector<comm::TrafficCount> counts;
  for (auto& [key, sum] : sums) counts.push_back(std::move(sum));
  return counts;
}

StagedCommunicator::StagedCommunicator(comm::Communicator& inner, DeviceMemory& memory,
                                       Allocate allocate)
    : comm::WrappedCommunicator(inner) {
  if (!allocate) allocate = [&inner](int64_t bytes) { return inner.allocate_symmetric(bytes); };
  staging_ = std::make_shared<Staging>(memory, std::move(allocate));
  inner.lend_cpus();
}

StagedCommunicator::StagedCommunicator(std::unique_ptr<comm::Communicator> inner,
                                       std::shared_ptr<Staging> staging)
    : comm::WrappedCommunicator(std::move(inner)), staging_(std::move(staging)) {}

StagedCommunicator::~StagedCommunicator() = default;

comm::WorkPtr StagedCommunicator::pass(const Call& call) {
  if (is_of_device(call)) return stage(call);
  staging_->start_all();
  return comm::WrappedCommunicator::pass(call);
}

bool StagedCommunicator::is_of_device(const Call& call) const {
  switch (call.op) {
    case mesh::CollectiveOp::kReduceScatter:
    case mesh::CollectiveOp::kAllReduce:
    case mesh::CollectiveOp::kAllGather:
    case mesh::CollectiveOp::kAllToAll:
      SMP_CHECK_EQ(staging_->holds(call.in), staging_->holds(call.out));
      // What cannot be divided is refused by the communicator behind, as host memory's is.
      if (call.op == mesh::CollectiveOp::kReduceScatter && call.count % size() != 0) return false;
      [[fallthrough]];
    case mesh::CollectiveOp::kReduce:
    case mesh::CollectiveOp::kGather:
    case mesh::CollectiveOp::kSend: return staging_->holds(call.in);
    case mesh::CollectiveOp::kBroadcast:
    case mesh::CollectiveOp::kScatter:
    case mesh::CollectiveOp::kRecv: return staging_->holds(call.out);
    case mesh::CollectiveOp::kBarrier: break;
  }
  return false;
}

// What a part of a call reads and writes, on the device and in the buffer.
struct StagedCommunicator::Sides {
  Staging::Piece in, out;
};

StagedCommunicator::Sides StagedCommunicator::sides_of(const Call& call, Cut part) const {
  const int64_t element = bytes_of(call.dtype);
  const int64_t begin = part.begin * element, bytes = part.count * element;
  const int64_t all = size() * bytes, own = rank() * bytes;
  const bool is_root = rank() == call.peer;
  Staging::Piece in{byte_at(call.in, begin), begin, bytes};
  Staging::Piece out{byte_at(call.out, begin), begin, bytes};
  const Staging::Piece none{nullptr, begin, 0};
  switch (call.op) {
    case mesh::CollectiveOp::kAllReduce: return {in, out};
    case mesh::CollectiveOp::kAllGather:
      in.offset = size() * begin + own;
      return {in, Staging::rows(out.device, size() * begin, bytes, size(), call.count * element)};
    case mesh::CollectiveOp::kReduceScatter:
      out.offset = size() * begin + own;
      return {
          Staging::rows(in.device, size() * begin, bytes, size(), call.count / size() * element),
          out};
    case mesh::CollectiveOp::kBroadcast: return is_root ? Sides{out, none} : Sides{none, out};
    case mesh::CollectiveOp::kReduce: return {in, is_root ? out : none};
    case mesh::CollectiveOp::kGather:
      if (!is_root) return {in, none};
      in.offset = own, out.bytes = all;
      return {in, out};
    case mesh::CollectiveOp::kScatter:
      if (!is_root) return {none, out};
      in.bytes = all, out.offset = own;
      return {in, out};
    case mesh::CollectiveOp::kAllToAll: in.bytes = out.bytes = out.offset = all; return {in, out};
    case mesh::CollectiveOp::kSend: return {in, none};
    case mesh::CollectiveOp::kRecv: return {none, out};
    case mesh::CollectiveOp::kBarrier: break;
  }
  return {};
}

// Every part is a call of its own, of its places in the buffer.
comm::WorkPtr StagedCommunicator::stage(const Call& call) {
  const Cuts cuts = cut(call);
  std::vector<Staging::Part> parts;
  int64_t bytes = 1;  // of a call of nothing too: no memory of no bytes can be pinned
  for (const Cut& part : cuts.parts) {
    const auto [in, out] = sides_of(call, part);
    bytes = std::max({bytes, in.end(), out.end()});
    Call here = call;
    here.count = call.op == mesh::CollectiveOp::kReduceScatter ? part.count * size() : part.count;
    parts.push_back({in, out,
                     [this, here, from = in.offset, to = out.offset,
                      label = cuts.label](std::byte* buffer) mutable {
                       here.in = buffer + from;
                       here.out = buffer + to;
                       here.label = label;
                       return make(here, inner());
                     }});
  }
  return staging_->queue(bytes, std::move(parts));
}

void StagedCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  staging_->start_all();
  inner().set_timeout(timeout);
}

// What is queued comes before the members' messages of splitting.
std::unique_ptr<comm::Communicator> StagedCommunicator::split(const std::vector<int>& members) {
  staging_->start_all();
  return std::unique_ptr<comm::Communicator>(
      new StagedCommunicator(inner().split(members), staging_));
}

}  // namespace smp::device
