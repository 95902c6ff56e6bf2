#include "groups/shm/window.h"

#include <algorithm>

#include "groups/shm/steps.h"
#include "reduce/copy.h"

namespace smp::groups {
namespace {

constexpr int64_t kChunkBytes = 128 << 10;

}  // namespace

// A call of all ranks. Its entries have the place of the memory, and stay for one more call.
std::unique_ptr<comm::PeerWindow> Group::open_window(const void* memory, int64_t count, DType dtype,
                                                     std::string_view label) {
  progress::Call call = collective(mesh::CollectiveOp::kBarrier, count, dtype, label);
  if (size_ > 1) {
    call.in_at = context_->job->offset_of(memory, call.bytes());
    call.out_at = int64_t(block_.control(rank_).shown.value.load());
  }
  const uint64_t number = call.number;
  auto work = operation(collectives_, std::move(call));
  if (size_ == 1) {
    start(std::move(work), run_alone(*work, nullptr, nullptr, 0))->wait();
    return nullptr;
  }
  start(std::move(work), run_barrier(*work))->wait();
  for (int p = 0; p < size_; ++p)
    if (block_.call(p, number).in_at < 0) return nullptr;
  return std::make_unique<GroupWindow>(*this, dtype, number);
}

GroupWindow::GroupWindow(Group& group, DType dtype, uint64_t opened_by)
    : group_(group), dtype_(dtype) {
  for (int p = 0; p < group.size_; ++p) {
    const segment::CallEntry& entry = group.block_.call(p, opened_by);
    memory_.push_back(group.context_->job->at(entry.in_at));
    shown_before_.push_back(uint64_t(entry.out_at));
  }
  lane_.member = this;
}

GroupWindow::~GroupWindow() {
  group_.context_->engine.close({&lane_}, "the window was destroyed before the call was complete");
}

void GroupWindow::show() {
  group_.block_.control(group_.rank_).shown.value.fetch_add(1);
  group_.ring_waiting_peers();
}

comm::WorkPtr GroupWindow::gather(int64_t begin, int64_t stride, int64_t count, int64_t shown,
                                  void* out, std::string_view label) {
  progress::Call call;
  call.op = mesh::CollectiveOp::kAllGather;
  call.dtype = dtype_;
  call.count = count;
  call.label = label;
  call.number = ++gathers_;
  auto work = group_.operation(lane_, std::move(call));
  return group_.start(std::move(work), run_gather(*work, {begin, stride, count}, uint64_t(shown),
                                                  static_cast<std::byte*>(out)));
}

progress::Program GroupWindow::run_gather(progress::Operation& op, Elements elements,
                                          uint64_t shown, std::byte* out) {
  const int64_t element = bytes_of(dtype_), bytes = elements.count * element;
  const bool non_temporal = group_.fills_cache(op.call);
  for (int step = 1; step <= group_.size_; ++step) {
    const int p = group_.next(step);
    const std::byte* from = memory_[size_t(p)] + (elements.begin + p * elements.stride) * element;
    const std::atomic<uint64_t>& versions = group_.block_.control(p).shown.value;
    for (int64_t at = 0; at < bytes; at += kChunkBytes) {
      co_await op.reaches(versions, shown_before_[size_t(p)] + shown, p);
      reduce::copy_bytes(out + bytes * p + at, from + at, std::min(kChunkBytes, bytes - at),
                         non_temporal);
    }
    if (p == group_.rank_) continue;
    while (!group_.was_whole(op, p)) co_await group_.never(op, p);
  }
  op.wire_bytes += bytes * (group_.size_ - 1);
}

}  // namespace smp::groups
