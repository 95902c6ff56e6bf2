#include "smp/comm/staged_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "smp/plan/check.h"
#include "smp/plan/collective.h"
#include "staging.h"

namespace smp {
namespace {

// So that copies and messages of one call go on side by side, yet each has the full rate.
constexpr int64_t kPartBytes = 4 << 20;

void* byte_at(const void* data, int64_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

}  // namespace

StagedCommunicator::Cuts StagedCommunicator::cut(CollectiveOp op, std::string_view label,
                                                 int64_t count, int64_t element_bytes,
                                                 int64_t unit) {
  const int64_t parts = std::max<int64_t>(1, count * element_bytes / kPartBytes);
  Cuts cuts{std::string(label), {}};
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = part_begin(count / unit, parts, i) * unit;
    const int64_t end = i + 1 < parts ? part_begin(count / unit, parts, i + 1) * unit : count;
    cuts.parts.push_back({begin, end - begin});
  }
  if (parts > 1) {
    const int64_t whole = op == CollectiveOp::kReduceScatter ? count * size() : count;
    cuts.label = fmt::format("{}, {} in {} parts", label, whole, parts);
    wholes_.try_emplace({cuts.label, op}, Whole{std::string(label), parts});
  }
  return cuts;
}

std::vector<TrafficCount> StagedCommunicator::traffic() const {
  std::map<std::pair<std::string, CollectiveOp>, TrafficCount> sums;
  for (TrafficCount count : WrappedCommunicator::traffic()) {
    if (const auto found = wholes_.find({count.label, count.op}); found != wholes_.end()) {
      count.label = found->second.label;
      count.calls /= found->second.parts;
    }
    const auto [sum, is_first] = sums.try_emplace({count.label, count.op}, count);
    if (is_first) continue;
    sum->second.calls += count.calls;
    sum->second.wire_bytes += count.wire_bytes;
  }
  std::vector<TrafficCount> counts;
  for (auto& [key, sum] : sums) counts.push_back(std::move(sum));
  return counts;
}

StagedCommunicator::StagedCommunicator(Communicator& inner, DeviceMemory& memory, Allocate allocate)
    : WrappedCommunicator(inner) {
  if (!allocate) allocate = [&inner](int64_t bytes) { return inner.allocate_symmetric(bytes); };
  staging_ = std::make_shared<Staging>(memory, std::move(allocate));
}

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner,
                                       std::shared_ptr<Staging> staging)
    : WrappedCommunicator(std::move(inner)), staging_(std::move(staging)) {}

StagedCommunicator::~StagedCommunicator() = default;

WorkPtr StagedCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                       ReduceOp op, std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().all_reduce(in, out, count, dtype, op, label);
  }
  const int64_t element = bytes_of(dtype);
  std::vector<Staging::Part> parts;
  const Cuts cuts = cut(CollectiveOp::kAllReduce, label, count, element, size());
  for (const auto [begin, elements] : cuts.parts) {
    const int64_t at = begin * element, bytes = elements * element;
    parts.push_back({{byte_at(in, at), at, bytes},
                     {byte_at(out, at), at, bytes},
                     [this, at, elements, dtype, op, label = cuts.label](std::byte* buffer) {
                       return inner().all_reduce(buffer + at, buffer + at, elements, dtype, op,
                                                 label);
                     }});
  }
  return staging_->queue(count * element, std::move(parts));
}

WorkPtr StagedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                       std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().all_gather(in, out, count, dtype, label);
  }
  const int64_t element = bytes_of(dtype);
  std::vector<Staging::Part> parts;
  const Cuts cuts = cut(CollectiveOp::kAllGather, label, count, size() * element, 1);
  for (const auto [begin, elements] : cuts.parts) {
    const int64_t from = begin * element, bytes = elements * element;
    const int64_t at = size() * from, own = at + rank() * bytes;
    parts.push_back({{byte_at(in, from), own, bytes},
                     Staging::rows(byte_at(out, from), at, bytes, size(), count * element),
                     [this, at, own, elements, dtype, label = cuts.label](std::byte* buffer) {
                       return inner().all_gather(buffer + own, buffer + at, elements, dtype, label);
                     }});
  }
  return staging_->queue(size() * count * element, std::move(parts));
}

WorkPtr StagedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                           ReduceOp op, std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  // What cannot be divided is refused by the communicator behind, as host memory's is.
  if (!staging_->holds(in) || count % size() != 0) {
    staging_->start_all();
    return inner().reduce_scatter(in, out, count, dtype, op, label);
  }
  const int64_t element = bytes_of(dtype), part = count / size();
  std::vector<Staging::Part> parts;
  const Cuts cuts = cut(CollectiveOp::kReduceScatter, label, part, size() * element, 1);
  for (const auto [begin, elements] : cuts.parts) {
    const int64_t from = begin * element, bytes = elements * element;
    const int64_t at = size() * from, own = at + rank() * bytes;
    parts.push_back({Staging::rows(byte_at(in, from), at, bytes, size(), part * element),
                     {byte_at(out, from), own, bytes},
                     [this, at, own, all = size() * elements, dtype, op,
                      label = cuts.label](std::byte* buffer) {
                       return inner().reduce_scatter(buffer + at, buffer + own, all, dtype, op,
                                                     label);
                     }});
  }
  return staging_->queue(count * element, std::move(parts));
}

WorkPtr StagedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                      std::string_view label) {
  if (!staging_->holds(buffer)) {
    staging_->start_all();
    return inner().broadcast(buffer, count, dtype, root, label);
  }
  const int64_t element = bytes_of(dtype);
  const bool gives = rank() == root;
  std::vector<Staging::Part> parts;
  const Cuts cuts = cut(CollectiveOp::kBroadcast, label, count, element, 1);
  for (const auto [begin, elements] : cuts.parts) {
    const int64_t at = begin * element;
    const Staging::Piece piece{byte_at(buffer, at), at, elements * element};
    parts.push_back({gives ? piece : Staging::Piece(), gives ? Staging::Piece() : piece,
                     [this, at, elements, dtype, root, label = cuts.label](std::byte* here) {
                       return inner().broadcast(here + at, elements, dtype, root, label);
                     }});
  }
  return staging_->queue(count * element, std::move(parts));
}

WorkPtr StagedCommunicator::reduce(const void* in, void* out, int64_t count, DType dtype,
                                   ReduceOp op, int root, std::string_view label) {
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().reduce(in, out, count, dtype, op, root, label);
  }
  const int64_t bytes = count * bytes_of(dtype);
  const Staging::Piece sum{out, 0, bytes};
  return staging_->queue(
      bytes, {{const_cast<void*>(in), 0, bytes},
              rank() == root ? sum : Staging::Piece(),
              [this, count, dtype, op, root, label = std::string(label)](std::byte* buffer) {
                return inner().reduce(buffer, buffer, count, dtype, op, root, label);
              }});
}

WorkPtr StagedCommunicator::gather(const void* in, void* out, int64_t count, DType dtype, int root,
                                   std::string_view label) {
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().gather(in, out, count, dtype, root, label);
  }
  const bool takes = rank() == root;
  const int64_t part = count * bytes_of(dtype), own = takes ? root * part : 0;
  const Staging::Piece all{out, 0, size() * part};
  return staging_->queue(
      takes ? all.bytes : part,
      {{const_cast<void*>(in), own, part},
       takes ? all : Staging::Piece(),
       [this, count, dtype, root, own, label = std::string(label)](std::byte* buffer) {
         return inner().gather(buffer + own, buffer, count, dtype, root, label);
       }});
}

WorkPtr StagedCommunicator::scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                                    std::string_view label) {
  if (!staging_->holds(out)) {
    staging_->start_all();
    return inner().scatter(in, out, count, dtype, root, label);
  }
  const bool gives = rank() == root;
  const int64_t part = count * bytes_of(dtype), own = gives ? root * part : 0;
  const Staging::Piece all{const_cast<void*>(in), 0, size() * part};
  return staging_->queue(
      gives ? all.bytes : part,
      {gives ? all : Staging::Piece(),
       {out, own, part},
       [this, count, dtype, root, own, label = std::string(label)](std::byte* buffer) {
         return inner().scatter(buffer, buffer + own, count, dtype, root, label);
       }});
}

WorkPtr StagedCommunicator::all_to_all(const void* in, void* out, int64_t count, DType dtype,
                                       std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().all_to_all(in, out, count, dtype, label);
  }
  const int64_t bytes = size() * count * bytes_of(dtype);
  return staging_->queue(
      2 * bytes, {{const_cast<void*>(in), 0, bytes},
                  {out, bytes, bytes},
                  [this, count, dtype, bytes, label = std::string(label)](std::byte* buffer) {
                    return inner().all_to_all(buffer, buffer + bytes, count, dtype, label);
                  }});
}

WorkPtr StagedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                 std::string_view label) {
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().send(in, count, dtype, peer, label);
  }
  const int64_t bytes = count * bytes_of(dtype);
  return staging_->queue(
      bytes, {{const_cast<void*>(in), 0, bytes},
              {},
              [this, count, dtype, peer, label = std::string(label)](std::byte* buffer) {
                return inner().send(buffer, count, dtype, peer, label);
              }});
}

WorkPtr StagedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                 std::string_view label) {
  if (!staging_->holds(out)) {
    staging_->start_all();
    return inner().recv(out, count, dtype, peer, label);
  }
  const int64_t bytes = count * bytes_of(dtype);
  return staging_->queue(
      bytes, {{},
              {out, 0, bytes},
              [this, count, dtype, peer, label = std::string(label)](std::byte* buffer) {
                return inner().recv(buffer, count, dtype, peer, label);
              }});
}

WorkPtr StagedCommunicator::barrier(std::string_view label) {
  staging_->start_all();
  return inner().barrier(label);
}

void StagedCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  staging_->start_all();
  inner().set_timeout(timeout);
}

// What is queued comes before the members' messages of splitting.
std::unique_ptr<Communicator> StagedCommunicator::split(const std::vector<int>& members) {
  staging_->start_all();
  return std::unique_ptr<Communicator>(new StagedCommunicator(inner().split(members), staging_));
}

}  // namespace smp
