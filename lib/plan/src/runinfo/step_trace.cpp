#include "smp/plan/runinfo/step_trace.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace smp::runinfo {

std::string_view TraceSlice::label_text() const {
  return {label.data(), ::strnlen(label.data(), label.size())};
}

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Written once, so that no step pays for first touches of its pages.
void StepTracer::reserve(size_t slices) {
  most_ = std::min(slices, kMostSlices);
  slices_.resize(most_);
  slices_.clear();
}

void StepTracer::mark_actions(ActionMarks* marks) {
  marks_ = marks;
  if (marks != nullptr) marked_.reserve(most_);
}

void StepTracer::begin_step(int64_t step) {
  on_ = true;
  step_ = step;
  TraceSlice slice;
  slice.kind = SliceKind::kStep;
  step_place_ = begin(slice);
}

void StepTracer::end_step() {
  end(step_place_);
  step_place_ = kNone;
  on_ = false;
}

size_t StepTracer::begin(const TraceSlice& slice) {
  if (slices_.size() == most_) {
    cut_ = true;
    return kNone;
  }
  slices_.push_back(slice);
  slices_.back().step = step_;
  slices_.back().begin_ns = steady_ns();
  return slices_.size() - 1;
}

size_t StepTracer::begin_action(const schedule::Action& action) {
  if (!on_) return kNone;
  TraceSlice slice;
  slice.kind = SliceKind::kAction;
  slice.action = action;
  const size_t place = begin(slice);
  if (marks_ != nullptr && place != kNone) {
    marks_->set(2 * marked_.size());
    marked_.push_back(place);
  }
  return place;
}

size_t StepTracer::begin_call(mesh::CollectiveOp op, mesh::Axis axis, std::string_view label,
                              int64_t bytes, int64_t members, int64_t peer) {
  if (!on_) return kNone;
  TraceSlice slice;
  slice.kind = SliceKind::kCall;
  slice.op = op;
  slice.axis = axis;
  slice.bytes = bytes;
  slice.members = static_cast<int32_t>(members);
  slice.peer = static_cast<int32_t>(peer);
  std::memcpy(slice.label.data(), label.data(), std::min(label.size(), slice.label.size() - 1));
  return begin(slice);
}

size_t StepTracer::begin_wait(size_t call) {
  if (!on_) return kNone;
  TraceSlice slice;
  slice.kind = SliceKind::kWait;
  if (call != kNone) {
    slice.op = slices_[call].op;
    slice.axis = slices_[call].axis;
    slice.label = slices_[call].label;
  }
  return begin(slice);
}

void StepTracer::end_now(size_t place) {
  // Cleared meanwhile: the call outlived the trace.
  if (place < slices_.size() && slices_[place].end_ns == TraceSlice::kOpen)
    slices_[place].end_ns = steady_ns();
}

void StepTracer::end_action(size_t place, int64_t live_bytes) {
  if (place == kNone) return;
  end_now(place);
  slices_[place].bytes = live_bytes;
  if (!marked_.empty() && marked_.back() == place) marks_->set(2 * marked_.size() - 1);
}

void StepTracer::add_gpu_slices() {
  if (marks_ == nullptr) return;
  for (size_t i = 0; i < marked_.size(); ++i) {
    const TraceSlice& action = slices_[marked_[i]];
    if (action.end_ns == TraceSlice::kOpen) continue;  // has no second mark
    if (slices_.size() == most_) {
      cut_ = true;
      break;
    }
    TraceSlice slice = action;
    slice.kind = SliceKind::kOnGpu;
    slice.bytes = 0;
    slice.begin_ns = marks_->ns_of(2 * i);
    slice.end_ns = std::max(slice.begin_ns, marks_->ns_of(2 * i + 1));
    slices_.push_back(slice);
  }
  marked_.clear();
}

void StepTracer::clear() {
  on_ = false;
  most_ = 0;
  slices_ = {};
  marked_ = {};
}

size_t slices_of_step(const std::vector<schedule::Action>& actions, const mesh::Degrees& degrees) {
  // A pass of a layer sums over its tensor ranks twice or thrice, and waits as often.
  const size_t of_action = degrees.tensor > 1 ? 16 : 6;
  return actions.size() * of_action + 64;
}

}  // namespace smp::runinfo
