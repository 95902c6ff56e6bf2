#include "groups/shm/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "arguments.h"
#include "reduce/copy.h"

namespace smp::groups {
namespace {

// Up to this size, two ranks each sum all elements instead of waiting for the other's half: the
// inputs and the output stay in a CPU's own cache.
constexpr int64_t kDirectOneShotBytes = 512 << 10;
// As above for private memory, with the slots in that cache too.
constexpr int64_t kOneShotOfTwoBytes = 256 << 10;
// All_reduces of private memory up to this size go through the ring: see
// run_through_ring().
constexpr int64_t kThroughRingBytes = 1 << 20;
static_assert(kThroughRingBytes <= mesh::kRingBytes);

}  // namespace

Group::Group(std::shared_ptr<RankContext> context, std::vector<int> globals, int rank, uint64_t key,
             std::vector<RecordPtr> parents)
    : GroupSide(std::move(context), std::move(globals), rank, key, std::move(parents)),
      peers_(globals_.size()),
      piece_bytes_(mesh::kSlotBytes / std::max(1, size_ - 1) / int64_t(segment::kLineBytes) *
                   int64_t(segment::kLineBytes)),
      consumed_(globals_.size()),
      writes_(globals_.size()),
      taken_(globals_.size()),
      sources_(globals_.size()) {
  for (Peer& p : peers_) p.sends.member = p.recvs.member = this;
  if (size_ == 1) {
    records_.insert(records_.begin(), std::make_shared<segment::FailureRecord>());
    return;
  }
  const auto& job = context_->job;
  const int own = global(rank_);
  const auto limit = context_->engine.timeout();
  const int place = job->open_group(key_, size_, own, limit);
  block_ = job->block(place);
  records_.insert(records_.begin(),
                  RecordPtr(&job->group_failure(place), [job, place, own, limit](auto*) {
                    job->close_group(place, own, limit);
                  }));
  segment::populate(block_.share(rank_), block_.share_bytes());
}

Group::~Group() {
  std::vector<progress::Lane*> lanes;
  for (Peer& p : peers_) {
    lanes.push_back(&p.sends);
    lanes.push_back(&p.recvs);
  }
  const bool abandoned = close(std::move(lanes));
  if (size_ == 1) return;
  block_.control(rank_).closed.store(abandoned || is_silent_ ? segment::RankControl::kAbandoned
                                                             : segment::RankControl::kLeft);
  ring_peers();
}

// A rank whose exception ended the group, but that then ended in good order, has left the group.
bool Group::has_left(int rank) const {
  return block_.control(rank).closed.load() == segment::RankControl::kLeft ||
         (has_abandoned(rank) && context_->job->board(global(rank)).gone.load() != 0);
}

bool Group::has_abandoned(int rank) const {
  return block_.control(rank).closed.load() == segment::RankControl::kAbandoned;
}

bool Group::has_called(int rank, const progress::Call& call) const {
  switch (call.op) {
    case mesh::CollectiveOp::kSend: return false;  // a receiver leaves no trace before it takes
    case mesh::CollectiveOp::kRecv:
      return block_.mail(rank, rank_).calls[call.number % segment::kCallsKept].number.load() >=
             call.number;
    default: return block_.call(rank, call.number).number.load() >= call.number;
  }
}

void Group::check_calls(const progress::Operation& op) const {
  if (op.call.op == mesh::CollectiveOp::kSend || op.call.op == mesh::CollectiveOp::kRecv) return;
  for (int step = 1; step < size_; ++step)
    if (has_called(next(step), op.call)) check_call(op, next(step));
}

// Whether peers may make this rank's part of the call, in its memory, if the call is direct.
bool Group::may_be_of_parts(const progress::Operation& op) {
  return op.call.op == mesh::CollectiveOp::kReduceScatter ||
         op.call.op == mesh::CollectiveOp::kAllReduce ||
         op.call.op == mesh::CollectiveOp::kAllGather;
}

int Group::counter_owner(const progress::Operation& op, int peer) const {
  if (!may_be_of_parts(op) || !has_called(peer, op.call)) return peer;
  const segment::RankControl& control = block_.control(peer);
  for (int piece = 0; piece < segment::kPieces; ++piece) {
    const uint64_t claim = control.pieces[piece].claimed.load();
    if (segment::number_of_claim(claim) == op.call.number &&
        control.pieces[piece].done.load() < op.call.number)
      return segment::holder_of_claim(claim);
  }
  return peer;
}

void Group::finished(const progress::Operation& op) {
  if (&op.lane == &collectives_) completed_.store(completed_.load() + 1, std::memory_order_release);
  if (may_be_of_parts(op) && op.posted && op.failed()) close_parts(op);
  GroupSide::finished(op);
}

// Posting a call only tells peers that this rank's buffers are ready, so it need not wait for its
// turn.
bool Group::may_post_early(const progress::Call& call) const {
  return call.number <= completed_.load() + segment::kCallsAhead;
}

bool Group::may_be_direct(progress::Call& call, ConstBytes in, int64_t in_bytes, ConstBytes out,
                          int64_t out_bytes) const {
  if (size_ == 1 || in_bytes <= mesh::kOneShotBytes) return false;
  const int64_t in_at = context_->job->offset_of(in, in_bytes);
  const int64_t out_at = context_->job->offset_of(out, out_bytes);
  if (in_at < 0 || (out_at < 0 && call.op != mesh::CollectiveOp::kAllGather)) return false;
  call.in_at = in_at;
  call.out_at = out_at;
  return true;
}

// Between two ranks both ways of private memory move the same bytes. One-shot has no second round,
// but each rank sums everything, which matters where memory is not the limit.
bool Group::is_one_shot(const progress::Call& call) const {
  return call.bytes() <= mesh::kOneShotBytes ||
         (size_ == 2 && (call.bytes() <= kOneShotOfTwoBytes || fills_cache(call)));
}

bool Group::may_go_through_ring(progress::Call& call) const {
  if (size_ <= std::max(2, cpus_of_parts()) || is_one_shot(call)) return false;
  if (call.bytes() > kThroughRingBytes || fills_cache(call)) return false;
  call.in_at = call.out_at = block_.ring(rank_) - context_->job->at(0);
  return true;
}

comm::WorkPtr Group::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                comm::ReduceOp op, std::string_view label) {
  progress::Call call = reduction(mesh::CollectiveOp::kAllReduce, in, out, count, dtype, op, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const int64_t bytes = call.bytes();
  const bool direct = may_be_direct(call, from, bytes, to, bytes);
  const bool through_ring = !direct && may_go_through_ring(call);
  auto work = operation(collectives_, std::move(call));
  return start(std::move(work), through_ring ? run_through_ring(*work, from, to)
                                             : direct_or_staged(*work, from, to, direct));
}

comm::WorkPtr Group::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                std::string_view label) {
  progress::Call call = collective(mesh::CollectiveOp::kAllGather, count, dtype, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const bool direct = may_be_direct(call, from, call.bytes(), to, call.bytes() * size_);
  auto work = operation(collectives_, std::move(call));
  return start(std::move(work), direct_or_staged(*work, from, to, direct));
}

comm::WorkPtr Group::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                    comm::ReduceOp op, std::string_view label) {
  comm::check_divisible(label, count, size_);
  progress::Call call =
      reduction(mesh::CollectiveOp::kReduceScatter, in, out, count, dtype, op, label);
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  const bool direct = may_be_direct(call, from, call.bytes(), to, call.bytes() / size_);
  auto work = operation(collectives_, std::move(call));
  if (direct && may_post_early(work->call)) post(*work);
  return start(std::move(work), direct_or_staged(*work, from, to, direct));
}

comm::WorkPtr Group::broadcast(void* buffer, int64_t count, DType dtype, int root,
                               std::string_view label) {
  auto work =
      operation(collectives_, with_root(mesh::CollectiveOp::kBroadcast, count, dtype, root, label));
  const auto data = static_cast<Bytes>(buffer);
  if (size_ == 1) return start(std::move(work), run_alone(*work, data, data, 0));
  return start(std::move(work), run_broadcast(*work, data));
}

int64_t Group::touched_bytes(const progress::Call& call, bool is_in_place) const {
  switch (call.op) {
    case mesh::CollectiveOp::kAllGather: return call.bytes() * size_ * (1 + size_);
    case mesh::CollectiveOp::kReduceScatter: return call.bytes() * (size_ + 1);
    case mesh::CollectiveOp::kAllReduce: return call.bytes() * size_ * (is_in_place ? 1 : 2);
    case mesh::CollectiveOp::kSend:
    case mesh::CollectiveOp::kRecv: return call.bytes() * 2;
    default: return call.bytes() * size_;
  }
}

bool Group::fills_cache(const progress::Call& call, bool is_in_place) const {
  return touched_bytes(call, is_in_place) >= context_->cpus.cache_bytes;
}

bool Group::about_fills_cache(const progress::Call& call) const {
  return touched_bytes(call) >= context_->cpus.cache_bytes / 2;
}

ResultWrites::StorePolicy Group::result_writes(const progress::Call& call,
                                               ResultWrites& kind) const {
  const int64_t cache = context_->cpus.cache_bytes;
  if (touched_bytes(call) >= cache + cache / 2) return {.non_temporal = true};
  if (!about_fills_cache(call)) return {};
  return kind.next();
}

void Group::write_slot(const progress::Operation& op, SlotWrites& writes, Bytes to, ConstBytes from,
                       int64_t bytes) const {
  writes.copy(to, from, bytes, about_fills_cache(op.call));
}

progress::Program Group::direct_or_staged(progress::Operation& op, ConstBytes in, Bytes out,
                                          bool direct) {
  if (size_ == 1) return run_alone(op, in, out, op.call.bytes());
  return direct ? run_direct_or_staged(op, in, out) : staged(op, in, out);
}

progress::Program Group::staged(progress::Operation& op, ConstBytes in, Bytes out) {
  switch (op.call.op) {
    case mesh::CollectiveOp::kAllGather: return run_all_gather(op, in, out);
    case mesh::CollectiveOp::kReduceScatter: return run_reduce_scatter(op, in, out);
    default: break;
  }
  if (is_one_shot(op.call)) return run_one_shot(op, in, out);
  const int64_t before = mesh::part_begin(op.call.count, size_, rank_) * bytes_of(op.call.dtype);
  return run_reduce_scatter(op, in, out + before);
}

progress::Program Group::direct(progress::Operation& op, ConstBytes in, Bytes out) {
  switch (op.call.op) {
    case mesh::CollectiveOp::kAllGather:
    case mesh::CollectiveOp::kReduceScatter: return run_direct_parts(op, out);
    default: break;
  }
  const bool is_one_shot = size_ == 2 && op.call.bytes() <= kDirectOneShotBytes && are_apart(op);
  return is_one_shot ? run_direct_one_shot(op, in, out) : run_direct_parts(op, out);
}

progress::Program Group::program_of(progress::Operation& op, ConstBytes in, Bytes out) {
  if (size_ == 1) return run_alone(op, in, out, op.call.bytes());
  const bool to_root =
      op.call.op == mesh::CollectiveOp::kReduce || op.call.op == mesh::CollectiveOp::kGather;
  return to_root ? run_to_root(op, in, out) : run_exchange(op, in, out);
}

comm::WorkPtr Group::barrier(std::string_view label) {
  auto work =
      operation(collectives_, collective(mesh::CollectiveOp::kBarrier, 0, DType::kU8, label));
  if (size_ == 1) return start(std::move(work), run_alone(*work, nullptr, nullptr, 0));
  return start(std::move(work), run_barrier(*work));
}

comm::WorkPtr Group::send(const void* in, int64_t count, DType dtype, int to,
                          std::string_view label) {
  comm::check_peer(mesh::CollectiveOp::kSend, label, to, rank_, size_);
  Peer& p = peers_[size_t(to)];
  auto work =
      operation(p.sends, message(mesh::CollectiveOp::kSend, count, dtype, to, label, p.sent));
  return start(std::move(work), run_send(*work, static_cast<ConstBytes>(in)));
}

comm::WorkPtr Group::recv(void* out, int64_t count, DType dtype, int from, std::string_view label) {
  comm::check_peer(mesh::CollectiveOp::kRecv, label, from, rank_, size_);
  Peer& p = peers_[size_t(from)];
  auto work =
      operation(p.recvs, message(mesh::CollectiveOp::kRecv, count, dtype, from, label, p.received));
  return start(std::move(work), run_recv(*work, static_cast<Bytes>(out)));
}

progress::Program Group::run_alone(progress::Operation&, ConstBytes in, Bytes out, int64_t bytes) {
  reduce::copy_bytes(out, in, bytes);
  co_return;
}

void Group::ring_peers() const {
  for (int step = 1; step < size_; ++step) context_->job->ring(global(next(step)), global(rank_));
}

// Ranks that compute check for new calls between layers. Without spare CPUs, waking their threads
// would only take the CPU from a rank that computes.
void Group::ring_waiting_peers() const {
  if (context_->engine.has_spare_cpus()) return ring_peers();
  for (int step = 1; step < size_; ++step)
    context_->job->ring_waiter(global(next(step)), global(rank_));
}

}  // namespace smp::groups
