#include "group.h"

#include <fmt/format.h>

#include <algorithm>

#include "arguments.h"
#include "copy.h"

namespace smp::shm {
namespace {

// Up to here two ranks each sum everything rather than wait for the other's half: in, out and the
// peer's in stay in a CPU's own cache.
constexpr int64_t kDirectOneShotBytes = 512 << 10;
// The same for private memory, where the slots lie in that cache too.
constexpr int64_t kOneShotOfTwoBytes = 256 << 10;
// All_reduces of private memory of up to so many bytes go through the ring: see
// run_through_ring().
constexpr int64_t kThroughRingBytes = 1 << 20;
static_assert(kThroughRingBytes <= kRingBytes);

}  // namespace

Group::Group(std::shared_ptr<Seat> seat, std::vector<int> globals, int rank, uint64_t key,
             std::vector<RecordPtr> parents)
    : GroupSide(std::move(seat), std::move(globals), rank, key, std::move(parents)),
      peers_(globals_.size()),
      piece_bytes_(kSlotBytes / std::max(1, size_ - 1) / int64_t(kLineBytes) * int64_t(kLineBytes)),
      consumed_(globals_.size()),
      writes_(globals_.size()),
      taken_(globals_.size()),
      sources_(globals_.size()) {
  for (Peer& p : peers_) p.sends.member = p.recvs.member = this;
  if (size_ == 1) {
    records_.insert(records_.begin(), std::make_shared<FailureRecord>());
    return;
  }
  const auto& job = seat_->job;
  const int own = global(rank_);
  const auto limit = seat_->engine.timeout();
  const int place = job->open_group(key_, size_, own, limit);
  block_ = job->block(place);
  records_.insert(records_.begin(),
                  RecordPtr(&job->group_failure(place), [job, place, own, limit](auto*) {
                    job->close_group(place, own, limit);
                  }));
  populate(block_.share(rank_), block_.share_bytes());
}

Group::~Group() {
  std::vector<Lane*> lanes;
  for (Peer& p : peers_) {
    lanes.push_back(&p.sends);
    lanes.push_back(&p.recvs);
  }
  const bool abandoned = close(std::move(lanes));
  if (size_ == 1) return;
  block_.control(rank_).closed.store(abandoned || quiet_ ? RankControl::kAbandoned
                                                         : RankControl::kLeft);
  ring_peers();
}

// A rank that an exception threw out of the group, but that then ended in good order, has left it.
bool Group::has_left(int rank) const {
  return block_.control(rank).closed.load() == RankControl::kLeft ||
         (has_abandoned(rank) && seat_->job->board(global(rank)).gone.load() != 0);
}

bool Group::has_abandoned(int rank) const {
  return block_.control(rank).closed.load() == RankControl::kAbandoned;
}

bool Group::has_called(int rank, const Call& call) const {
  switch (call.op) {
    case CollectiveOp::kSend: return false;  // a receiver leaves no trace before it takes
    case CollectiveOp::kRecv:
      return block_.mail(rank, rank_).calls[call.number % kCallsKept].number.load() >= call.number;
    default: return block_.call(rank, call.number).number.load() >= call.number;
  }
}

void Group::check_calls(const Operation& op) const {
  if (op.call.op == CollectiveOp::kSend || op.call.op == CollectiveOp::kRecv) return;
  for (int step = 1; step < size_; ++step)
    if (has_called(next(step), op.call)) check_call(op, next(step));
}

// Whether peers may make this rank's part of the call, in its memory, if the call is direct.
bool Group::may_be_of_parts(const Operation& op) {
  return op.call.op == CollectiveOp::kReduceScatter || op.call.op == CollectiveOp::kAllReduce ||
         op.call.op == CollectiveOp::kAllGather;
}

int Group::mover_of(const Operation& op, int peer) const {
  if (!may_be_of_parts(op) || !has_called(peer, op.call)) return peer;
  const RankControl& control = block_.control(peer);
  for (int piece = 0; piece < kPieces; ++piece) {
    const uint64_t claim = control.pieces[piece].claimed.load();
    if (number_of_claim(claim) == op.call.number &&
        control.pieces[piece].done.load() < op.call.number)
      return holder_of_claim(claim);
  }
  return peer;
}

void Group::finished(const Operation& op) {
  if (&op.lane == &collectives_) completed_.store(completed_.load() + 1, std::memory_order_release);
  if (may_be_of_parts(op) && op.posted && op.failed()) close_parts(op);
  GroupSide::finished(op);
}

// To post a call only tells peers that this rank's buffers are ready: it need not wait for its
// turn.
bool Group::may_post_early(const Call& call) const {
  return call.number <= completed_.load() + kCallsAhead;
}

bool Group::may_be_direct(Call& call, ConstBytes in, int64_t in_bytes, ConstBytes out,
                          int64_t out_bytes) const {
  if (size_ == 1 || in_bytes <= kOneShotBytes) return false;
  const int64_t in_at = seat_->job->offset_of(in, in_bytes);
  const int64_t out_at = seat_->job->offset_of(out, out_bytes);
  if (in_at < 0 || (out_at < 0 && call.op != CollectiveOp::kAllGather)) return false;
  call.in_at = in_at;
  call.out_at = out_at;
  return true;
}

// Between two ranks both ways of private memory move the same bytes. One-shot has no second round,
// but each rank sums everything, which matters where memory is not the limit.
bool Group::is_one_shot(const Call& call) const {
  return call.bytes() <= kOneShotBytes ||
         (size_ == 2 && (call.bytes() <= kOneShotOfTwoBytes || fills_cache(call)));
}

bool Group::may_go_through_ring(Call& call) const {
  if (size_ <= std::max(2, cpus_of_parts()) || is_one_shot(call)) return false;
  if (call.bytes() > kThroughRingBytes || fills_cache(call)) return false;
  call.in_at = call.out_at = block_.ring(rank_) - seat_->job->at(0);
  return true;
}

WorkPtr Group::all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                          std::string_view label) {
  Call call = reduction(CollectiveOp::kAllReduce, in, out, count, dtype, op, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const int64_t bytes = call.bytes();
  const bool direct = may_be_direct(call, from, bytes, to, bytes);
  const bool through_ring = !direct && may_go_through_ring(call);
  auto work = operation(collectives_, std::move(call));
  return start(std::move(work), through_ring ? run_through_ring(*work, from, to)
                                             : direct_or_staged(*work, from, to, direct));
}

WorkPtr Group::all_gather(const void* in, void* out, int64_t count, DType dtype,
                          std::string_view label) {
  Call call = collective(CollectiveOp::kAllGather, count, dtype, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const bool direct = may_be_direct(call, from, call.bytes(), to, call.bytes() * size_);
  auto work = operation(collectives_, std::move(call));
  return start(std::move(work), direct_or_staged(*work, from, to, direct));
}

WorkPtr Group::reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                              std::string_view label) {
  check_divisible(label, count, size_);
  Call call = reduction(CollectiveOp::kReduceScatter, in, out, count, dtype, op, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const bool direct = may_be_direct(call, from, call.bytes(), to, call.bytes() / size_);
  auto work = operation(collectives_, std::move(call));
  if (direct && may_post_early(work->call)) post(*work);
  return start(std::move(work), direct_or_staged(*work, from, to, direct));
}

WorkPtr Group::broadcast(void* buffer, int64_t count, DType dtype, int root,
                         std::string_view label) {
  auto work =
      operation(collectives_, with_root(CollectiveOp::kBroadcast, count, dtype, root, label));
  const auto data = static_cast<Bytes>(buffer);
  if (size_ == 1) return start(std::move(work), run_alone(*work, data, data, 0));
  return start(std::move(work), run_broadcast(*work, data));
}

int64_t Group::touched_bytes(const Call& call, bool is_in_place) const {
  switch (call.op) {
    case CollectiveOp::kAllGather: return call.bytes() * size_ * (1 + size_);
    case CollectiveOp::kReduceScatter: return call.bytes() * (size_ + 1);
    case CollectiveOp::kAllReduce: return call.bytes() * size_ * (is_in_place ? 1 : 2);
    case CollectiveOp::kSend:
    case CollectiveOp::kRecv: return call.bytes() * 2;
    default: return call.bytes() * size_;
  }
}

bool Group::fills_cache(const Call& call, bool is_in_place) const {
  return touched_bytes(call, is_in_place) >= seat_->cpus.cache_bytes;
}

bool Group::about_fills_cache(const Call& call) const {
  return touched_bytes(call) >= seat_->cpus.cache_bytes / 2;
}

ResultWrites::Way Group::result_writes(const Call& call, ResultWrites& kind) const {
  const int64_t cache = seat_->cpus.cache_bytes;
  if (touched_bytes(call) >= cache + cache / 2) return {.around = true};
  if (!about_fills_cache(call)) return {};
  return kind.next();
}

void Group::write_slot(const Operation& op, SlotWrites& writes, Bytes to, ConstBytes from,
                       int64_t bytes) const {
  writes.copy(to, from, bytes, about_fills_cache(op.call));
}

Program Group::direct_or_staged(Operation& op, ConstBytes in, Bytes out, bool direct) {
  if (size_ == 1) return run_alone(op, in, out, op.call.bytes());
  return direct ? run_direct_or_staged(op, in, out) : staged(op, in, out);
}

Program Group::staged(Operation& op, ConstBytes in, Bytes out) {
  switch (op.call.op) {
    case CollectiveOp::kAllGather: return run_all_gather(op, in, out);
    case CollectiveOp::kReduceScatter: return run_reduce_scatter(op, in, out);
    default: break;
  }
  if (is_one_shot(op.call)) return run_one_shot(op, in, out);
  const int64_t before = part_begin(op.call.count, size_, rank_) * bytes_of(op.call.dtype);
  return run_reduce_scatter(op, in, out + before);
}

Program Group::direct(Operation& op, ConstBytes in, Bytes out) {
  switch (op.call.op) {
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter: return run_direct_parts(op, out);
    default: break;
  }
  const bool is_one_shot = size_ == 2 && op.call.bytes() <= kDirectOneShotBytes && are_apart(op);
  return is_one_shot ? run_direct_one_shot(op, in, out) : run_direct_parts(op, out);
}

Program Group::program_of(Operation& op, ConstBytes in, Bytes out) {
  if (size_ == 1) return run_alone(op, in, out, op.call.bytes());
  const bool to_root = op.call.op == CollectiveOp::kReduce || op.call.op == CollectiveOp::kGather;
  return to_root ? run_to_root(op, in, out) : run_exchange(op, in, out);
}

WorkPtr Group::barrier(std::string_view label) {
  auto work = operation(collectives_, collective(CollectiveOp::kBarrier, 0, DType::kU8, label));
  if (size_ == 1) return start(std::move(work), run_alone(*work, nullptr, nullptr, 0));
  return start(std::move(work), run_barrier(*work));
}

WorkPtr Group::send(const void* in, int64_t count, DType dtype, int to, std::string_view label) {
  check_peer(CollectiveOp::kSend, label, to, rank_, size_);
  Peer& p = peers_[size_t(to)];
  auto work = operation(p.sends, message(CollectiveOp::kSend, count, dtype, to, label, p.sent));
  return start(std::move(work), run_send(*work, static_cast<ConstBytes>(in)));
}

WorkPtr Group::recv(void* out, int64_t count, DType dtype, int from, std::string_view label) {
  check_peer(CollectiveOp::kRecv, label, from, rank_, size_);
  Peer& p = peers_[size_t(from)];
  auto work =
      operation(p.recvs, message(CollectiveOp::kRecv, count, dtype, from, label, p.received));
  return start(std::move(work), run_recv(*work, static_cast<Bytes>(out)));
}

Program Group::run_alone(Operation&, ConstBytes in, Bytes out, int64_t bytes) {
  copy_bytes(out, in, bytes);
  co_return;
}

void Group::ring_peers() const {
  for (int step = 1; step < size_; ++step) seat_->job->ring(global(next(step)), global(rank_));
}

// Ranks that compute look for themselves between layers. Where there is no CPU to spare, waking
// their threads would only take the CPU from a rank that computes.
void Group::ring_waiting_peers() const {
  if (seat_->engine.has_spare_cpus()) return ring_peers();
  for (int step = 1; step < size_; ++step)
    seat_->job->ring_waiter(global(next(step)), global(rank_));
}

}  // namespace smp::shm
