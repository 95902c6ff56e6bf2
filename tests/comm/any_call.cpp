#include "comm/any_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace smp::testing {

namespace {

// Elements that a rank puts into a call and gets out of it.
struct Share {
  int64_t in, out;
};

Share share_of(const AnyCall& call, int size, bool is_root) {
  const int64_t part = call.count, all = part * size;
  switch (call.op) {
    case mesh::CollectiveOp::kAllGather: return {part, all};
    case mesh::CollectiveOp::kReduceScatter: return {all, part};
    case mesh::CollectiveOp::kReduce: return {part, is_root ? part : 0};
    case mesh::CollectiveOp::kGather: return {part, is_root ? all : 0};
    case mesh::CollectiveOp::kScatter: return {is_root ? all : 0, part};
    case mesh::CollectiveOp::kAllToAll: return {all, all};
    default: return {part, part};
  }
}

}  // namespace

std::shared_ptr<std::byte[]> SymmetricRoom::take(int64_t bytes) {
  for (auto block = blocks_.lower_bound(bytes); block != blocks_.end(); ++block)
    if (block->second.use_count() == 1) return block->second;
  const auto room = int64_t(std::bit_ceil(uint64_t(bytes)));
  return blocks_.emplace(room, comm_.allocate_symmetric(room))->second;
}

bool AnyCall::reduces() const {
  return op == mesh::CollectiveOp::kAllReduce || op == mesh::CollectiveOp::kReduceScatter ||
         op == mesh::CollectiveOp::kReduce;
}

bool AnyCall::has_root() const {
  return op == mesh::CollectiveOp::kBroadcast || op == mesh::CollectiveOp::kReduce ||
         op == mesh::CollectiveOp::kGather || op == mesh::CollectiveOp::kScatter;
}

bool AnyCall::can_be_in_place() const {
  return op != mesh::CollectiveOp::kBroadcast && op != mesh::CollectiveOp::kAllToAll &&
         op != mesh::CollectiveOp::kSend;
}

std::string text_of(const AnyCall& call) {
  return fmt::format("{} of {} {} ({}), root {}{}{}", name_of(call.op), call.count,
                     name_of(call.dtype), name_of(call.reduction), call.root,
                     call.in_place ? ", in place" : "", call.room != nullptr ? ", symmetric" : "");
}

CallUnderWay::CallUnderWay(comm::Communicator& comm, const AnyCall& call)
    : call_(call), size_(comm.size()), rank_(comm.rank()) {
  const Share share = share_of(call, size_, rank_ == call.root);
  in_place_ = call.op == mesh::CollectiveOp::kBroadcast ||
              (call.in_place && call.can_be_in_place() && share.in > 0 && share.out > 0);
  const auto memory_of = [&](int64_t elements) {
    return call.room != nullptr ? Values(call.dtype, call.room->take(elements * bytes()))
                                : Values(call.dtype, elements);
  };
  in_ = memory_of(in_place_ ? std::max(share.in, share.out) : share.in);
  if (!in_place_) out_ = memory_of(share.out);
  if (in_place_ && share.in < share.out) in_begin_ = rank_ * call.count;
  if (in_place_ && share.out < share.in) out_begin_ = rank_ * call.count;

  constexpr int kNothing = 0x5a;  // must not be left
  if (share.out > 0 && !in_place_) memset(out_.data(), kNothing, size_t(share.out * bytes()));
  in_.fill(in_begin_, share.in, [&](int64_t i) { return value(rank_, i); });
  Values& output = in_place_ ? in_ : out_;
  start(comm, share.in > 0 ? in_.at(in_begin_) : nullptr,
        share.out > 0 ? output.at(out_begin_) : nullptr);
}

void CallUnderWay::start(comm::Communicator& comm, const void* in, void* out) {
  const auto& [op, count, dtype, reduction, root, in_place, room, salt, label] = call_;
  const auto is = [&](comm::WorkPtr work) { works_.push_back(std::move(work)); };
  switch (op) {
    case mesh::CollectiveOp::kAllGather: return is(comm.all_gather(in, out, count, dtype, label));
    case mesh::CollectiveOp::kReduceScatter:
      return is(comm.reduce_scatter(in, out, count * size_, dtype, reduction, label));
    case mesh::CollectiveOp::kBroadcast: return is(comm.broadcast(out, count, dtype, root, label));
    case mesh::CollectiveOp::kReduce:
      return is(comm.reduce(in, out, count, dtype, reduction, root, label));
    case mesh::CollectiveOp::kGather: return is(comm.gather(in, out, count, dtype, root, label));
    case mesh::CollectiveOp::kScatter: return is(comm.scatter(in, out, count, dtype, root, label));
    case mesh::CollectiveOp::kAllToAll: return is(comm.all_to_all(in, out, count, dtype, label));
    case mesh::CollectiveOp::kSend:
      if (size_ == 1) return;
      is(comm.send(in, count, dtype, (rank_ + 1) % size_, label));
      return is(comm.recv(out, count, dtype, (rank_ + size_ - 1) % size_, label));
    default: return is(comm.all_reduce(in, out, count, dtype, reduction, label));
  }
}

int64_t CallUnderWay::bytes() const { return bytes_of(call_.dtype); }

int CallUnderWay::value(int rank, int64_t i) const {
  return call_.reduces() ? value_of(call_.reduction, rank, i + call_.salt)
                         : value_of(rank, i + call_.salt);
}

int64_t CallUnderWay::wrong_output() {
  Values& output = in_place_ ? in_ : out_;
  const int64_t count = call_.count;
  const bool is_root = rank_ == call_.root;
  // Elements of one rank, which begin at `begin` of what it put into the call.
  const auto of_rank = [&](int64_t place, int rank, int64_t begin) {
    return output.differences(out_begin_ + place, count,
                              [&](int64_t i, double got) { return got == value(rank, begin + i); });
  };
  const auto sums_from = [&](int64_t begin) {
    return output.differences(out_begin_, count, [&](int64_t i, double got) {
      return is_reduced(got, call_.reduction, call_.dtype, size_, begin + i + call_.salt);
    });
  };
  int64_t wrong = 0;
  switch (call_.op) {
    case mesh::CollectiveOp::kReduce: return is_root ? sums_from(0) : 0;
    case mesh::CollectiveOp::kReduceScatter: return sums_from(rank_ * count);
    case mesh::CollectiveOp::kBroadcast: return of_rank(0, call_.root, 0);
    case mesh::CollectiveOp::kScatter: return of_rank(0, call_.root, rank_ * count);
    case mesh::CollectiveOp::kSend:
      return size_ == 1 ? 0 : of_rank(0, (rank_ + size_ - 1) % size_, 0);
    case mesh::CollectiveOp::kAllGather:
    case mesh::CollectiveOp::kGather:
      for (int rank = 0; rank < size_ && (is_root || call_.op == mesh::CollectiveOp::kAllGather);
           ++rank)
        wrong += of_rank(rank * count, rank, 0);
      return wrong;
    case mesh::CollectiveOp::kAllToAll:
      for (int rank = 0; rank < size_; ++rank) wrong += of_rank(rank * count, rank, rank_ * count);
      return wrong;
    default: return sums_from(0);
  }
}

int64_t CallUnderWay::wrong_elements() {
  for (const comm::WorkPtr& work : works_) work->wait();
  const int64_t wrong = wrong_output();
  if (in_place_) return wrong;
  const int64_t put = share_of(call_, size_, rank_ == call_.root).in;
  return wrong +
         in_.differences(0, put, [&](int64_t i, double got) { return got == value(rank_, i); });
}

}  // namespace smp::testing
