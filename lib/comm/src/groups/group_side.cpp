#include "groups/group_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arguments.h"
#include "smp/comm/waiting/creator_process.h"
#include "waiting/thread_cached_allocator.h"

namespace smp::groups {
namespace {

constexpr int64_t kRegisteredAtOnce = int64_t{1} << 30;  // bytes of symmetric memory

}  // namespace

GroupSide::GroupSide(std::shared_ptr<RankContext> context, std::vector<int> globals, int rank,
                     uint64_t key, std::vector<RecordPtr> parents)
    : context_(std::move(context)),
      globals_(std::move(globals)),
      rank_(rank),
      size_(int(globals_.size())),
      key_(key),
      records_(std::move(parents)),
      timeout_(context_->engine.timeout()),
      keys_(key) {
  collectives_.member = this;
  logged_.group_size = size_;
  logged_.group_first = global(0);
  logged_.group_stride = size_ > 1 ? global(1) - global(0) : 1;
  for (int r = 1; r < size_; ++r)
    if (global(r) - global(r - 1) != logged_.group_stride) logged_.group_stride = 0;
}

int GroupSide::global_rank(int rank) const {
  comm::check_rank(rank, size_);
  return global(rank);
}

std::optional<segment::Failure> GroupSide::failure() const {
  for (const RecordPtr& record : records_)
    if (auto failure = context_->job->read(*record)) return failure;
  return std::nullopt;
}

// The traffic of a step is counted for the call that the step belongs to. A step has no row of its
// own: its label has the number of the call, so there would be as many rows as calls.
void GroupSide::finished(const progress::Operation& op) {
  if (progress::is_step(op.call.label)) return;
  traffic_.add(op.call.label, op.call.op, op.wire_bytes);
}

progress::Call GroupSide::collective(mesh::CollectiveOp op, int64_t count, DType dtype,
                                     std::string_view label) {
  comm::check_count(op, label, count);
  progress::Call call;
  call.op = op;
  call.dtype = dtype;
  call.count = count;
  call.label = label;
  call.number = ++calls_;
  return call;
}

progress::Call GroupSide::reduction(mesh::CollectiveOp op, const void* in, const void* out,
                                    int64_t count, DType dtype, comm::ReduceOp how,
                                    std::string_view label) {
  comm::check_aligned(op, label, "input", in, dtype);
  comm::check_aligned(op, label, "output", out, dtype);
  progress::Call call = collective(op, count, dtype, label);
  call.reduce_op = how;
  return call;
}

progress::Call GroupSide::with_root(mesh::CollectiveOp op, int64_t count, DType dtype, int root,
                                    std::string_view label) {
  comm::check_root(op, label, root, size_);
  progress::Call call = collective(op, count, dtype, label);
  call.peer = root;
  return call;
}

progress::Call GroupSide::message(mesh::CollectiveOp op, int64_t count, DType dtype, int peer,
                                  std::string_view label, uint64_t& number) {
  comm::check_count(op, label, count);
  return {op, dtype, comm::ReduceOp::kSum, count, peer, std::string(label), ++number};
}

std::shared_ptr<progress::Operation> GroupSide::operation(progress::Lane& lane,
                                                          progress::Call&& call) {
  return std::allocate_shared<progress::Operation>(
      waiting::ThreadCachedAllocator<progress::Operation>(), context_->engine, lane,
      std::move(call), timeout_.load());
}

void GroupSide::log(progress::Operation& op) const {
  const progress::Call& call = op.call;
  progress::store(context_->job->board(global(rank_)).last_call, call);
  comm::LoggedCall logged = logged_;
  if (op.started()) logged.state = comm::LoggedCall::State::kStarted;
  logged.number = call.number;
  logged.op = call.op;
  logged.dtype = call.dtype;
  logged.count = call.count;
  logged.peer = call.peer < 0 ? -1 : global(call.peer);
  op.logged = context_->engine.log()->enqueue(logged, call.label);
}

comm::WorkPtr GroupSide::start(std::shared_ptr<progress::Operation>&& op,
                               progress::Program program) {
  op->program = std::move(program);
  context_->engine.submit(op);
  return std::allocate_shared<progress::WorkHandle>(
      waiting::ThreadCachedAllocator<progress::WorkHandle>(), std::move(op));
}

comm::WorkPtr GroupSide::start(progress::Call call, const void* in, void* out) {
  auto work = operation(collectives_, std::move(call));
  return start(std::move(work),
               program_of(*work, static_cast<ConstBytes>(in), static_cast<Bytes>(out)));
}

comm::WorkPtr GroupSide::reduce(const void* in, void* out, int64_t count, DType dtype,
                                comm::ReduceOp op, int root, std::string_view label) {
  comm::check_root(mesh::CollectiveOp::kReduce, label, root, size_);
  progress::Call call = reduction(mesh::CollectiveOp::kReduce, in, out, count, dtype, op, label);
  call.peer = root;
  return start(std::move(call), in, out);
}

comm::WorkPtr GroupSide::gather(const void* in, void* out, int64_t count, DType dtype, int root,
                                std::string_view label) {
  return start(with_root(mesh::CollectiveOp::kGather, count, dtype, root, label), in, out);
}

comm::WorkPtr GroupSide::scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                                 std::string_view label) {
  return start(with_root(mesh::CollectiveOp::kScatter, count, dtype, root, label), in, out);
}

comm::WorkPtr GroupSide::all_to_all(const void* in, void* out, int64_t count, DType dtype,
                                    std::string_view label) {
  return start(collective(mesh::CollectiveOp::kAllToAll, count, dtype, label), in, out);
}

// Registers the block with a network that takes only registered memory, until the block or the
// network ends. The block is registered in parts, because a part takes up to tenths of a second, in
// which this rank answers no status requests.
std::shared_ptr<std::byte[]> GroupSide::allocate_symmetric(int64_t bytes) {
  auto block = context_->arena->allocate(bytes);
  if (block == nullptr || context_->endpoint == nullptr || context_->endpoint->takes_any_memory())
    return block;
  std::byte* const begin = block.get();
  std::shared_ptr<std::byte[]> known(
      begin, [bytes, block = std::move(block), context = std::weak_ptr(context_),
              home = waiting::CreatorProcess()](std::byte*) mutable {
        const auto held = home.is_here() ? context.lock() : nullptr;
        for (int64_t at = 0; held && at < bytes; at += kRegisteredAtOnce)
          held->engine.exclusively([&] { held->endpoint->deregister_memory(block.get() + at); });
        block.reset();
      });
  for (int64_t at = 0; at < bytes; at += kRegisteredAtOnce)
    context_->engine.exclusively([&] {
      context_->endpoint->register_memory(begin + at, std::min(bytes - at, kRegisteredAtOnce));
    });
  return known;
}

bool GroupSide::close(std::vector<progress::Lane*> lanes) {
  lanes.push_back(&collectives_);
  context_->engine.close(std::move(lanes),
                         "the communicator was destroyed before the call was complete");
  const bool abandoned = unwinding_.now();
  if (size_ > 1 && abandoned && key_ == net::kWorldKey && !failure()) {
    const int self = global(rank_);
    context_->job->fail(context_->job->failure(),
                        {comm::CommError::Kind::kAborted, self, self,
                         fmt::format("rank {} ended with an exception", self)});
  }
  return abandoned;
}

std::unique_ptr<comm::Communicator> GroupSide::split(const std::vector<int>& members) {
  const int place = comm::place_in(members, rank_, size_);
  std::vector<int> globals;
  for (const int member : members) globals.push_back(global(member));
  const uint64_t key = keys_.next(globals);
  auto group = make_group(context_, std::move(globals), place, key, records_);
  group->set_timeout(timeout_.load());
  return group;
}

void GroupSide::abort(const std::string& reason) {
  if (failure()) return;  // the first failure is the cause
  const int self = global(rank_);
  context_->job->fail(*records_.front(), {comm::CommError::Kind::kAborted, self, self,
                                          fmt::format("rank {} aborted: {}", self, reason)});
}

std::optional<comm::CommError> GroupSide::error() const {
  const auto found = failure();
  if (!found) return std::nullopt;
  return comm::CommError(found->kind, found->culprit, found->text);
}

comm::Survivors GroupSide::shrink(std::chrono::milliseconds limit) {
  return context_->regroup ? context_->regroup->run(limit) : comm::Communicator::shrink(limit);
}

}  // namespace smp::groups
