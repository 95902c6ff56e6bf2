#include "smp/runtime/staged_communicator.h"

#include <utility>

#include "smp/plan/check.h"
#include "staging.h"

namespace smp {

StagedCommunicator::StagedCommunicator(Communicator& inner, DeviceMemory& memory)
    : WrappedCommunicator(inner), staging_(std::make_shared<Staging>(memory, inner)) {}

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
  const int64_t bytes = count * bytes_of(dtype);
  return staging_->queue(bytes, {const_cast<void*>(in), 0, bytes}, {out, 0, bytes},
                         [this, count, dtype, op, label = std::string(label)](std::byte* buffer) {
                           return inner().all_reduce(buffer, buffer, count, dtype, op, label);
                         });
}

WorkPtr StagedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                       std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().all_gather(in, out, count, dtype, label);
  }
  const int64_t part = count * bytes_of(dtype), own = rank() * part;
  return staging_->queue(size() * part, {const_cast<void*>(in), own, part}, {out, 0, size() * part},
                         [this, count, dtype, own, label = std::string(label)](std::byte* buffer) {
                           return inner().all_gather(buffer + own, buffer, count, dtype, label);
                         });
}

WorkPtr StagedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                           ReduceOp op, std::string_view label) {
  SMP_CHECK_EQ(staging_->holds(in), staging_->holds(out));
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().reduce_scatter(in, out, count, dtype, op, label);
  }
  const int64_t bytes = count * bytes_of(dtype), part = bytes / size(), own = rank() * part;
  return staging_->queue(
      bytes, {const_cast<void*>(in), 0, bytes}, {out, own, part},
      [this, count, dtype, op, own, label = std::string(label)](std::byte* buffer) {
        return inner().reduce_scatter(buffer, buffer + own, count, dtype, op, label);
      });
}

WorkPtr StagedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                      std::string_view label) {
  if (!staging_->holds(buffer)) {
    staging_->start_all();
    return inner().broadcast(buffer, count, dtype, root, label);
  }
  const Staging::Piece all{buffer, 0, count * bytes_of(dtype)};
  const bool gives = rank() == root;
  return staging_->queue(all.bytes, gives ? all : Staging::Piece(), gives ? Staging::Piece() : all,
                         [this, count, dtype, root, label = std::string(label)](std::byte* here) {
                           return inner().broadcast(here, count, dtype, root, label);
                         });
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
      bytes, {const_cast<void*>(in), 0, bytes}, rank() == root ? sum : Staging::Piece(),
      [this, count, dtype, op, root, label = std::string(label)](std::byte* buffer) {
        return inner().reduce(buffer, buffer, count, dtype, op, root, label);
      });
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
      takes ? all.bytes : part, {const_cast<void*>(in), own, part}, takes ? all : Staging::Piece(),
      [this, count, dtype, root, own, label = std::string(label)](std::byte* buffer) {
        return inner().gather(buffer + own, buffer, count, dtype, root, label);
      });
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
      gives ? all.bytes : part, gives ? all : Staging::Piece(), {out, own, part},
      [this, count, dtype, root, own, label = std::string(label)](std::byte* buffer) {
        return inner().scatter(buffer, buffer + own, count, dtype, root, label);
      });
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
      2 * bytes, {const_cast<void*>(in), 0, bytes}, {out, bytes, bytes},
      [this, count, dtype, bytes, label = std::string(label)](std::byte* buffer) {
        return inner().all_to_all(buffer, buffer + bytes, count, dtype, label);
      });
}

WorkPtr StagedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                 std::string_view label) {
  if (!staging_->holds(in)) {
    staging_->start_all();
    return inner().send(in, count, dtype, peer, label);
  }
  const int64_t bytes = count * bytes_of(dtype);
  return staging_->queue(bytes, {const_cast<void*>(in), 0, bytes}, {},
                         [this, count, dtype, peer, label = std::string(label)](std::byte* buffer) {
                           return inner().send(buffer, count, dtype, peer, label);
                         });
}

WorkPtr StagedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                 std::string_view label) {
  if (!staging_->holds(out)) {
    staging_->start_all();
    return inner().recv(out, count, dtype, peer, label);
  }
  const int64_t bytes = count * bytes_of(dtype);
  return staging_->queue(bytes, {}, {out, 0, bytes},
                         [this, count, dtype, peer, label = std::string(label)](std::byte* buffer) {
                           return inner().recv(buffer, count, dtype, peer, label);
                         });
}

WorkPtr StagedCommunicator::barrier(std::string_view label) {
  staging_->start_all();
  return inner().barrier(label);
}

// What is queued comes before the members' messages of splitting.
std::unique_ptr<Communicator> StagedCommunicator::split(const std::vector<int>& members) {
  staging_->start_all();
  return std::unique_ptr<Communicator>(new StagedCommunicator(inner().split(members), staging_));
}

}  // namespace smp
