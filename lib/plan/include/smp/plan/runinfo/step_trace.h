#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/mesh/collective.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/schedule/action.h"

namespace smp::runinfo {

// The kinds of slices of a rank's timeline.
enum class SliceKind : uint8_t {
  kStep,    // all of a step's actions
  kAction,  // one of the schedule
  kWait,    // for a call, within an action
  kCall,    // a collective or a message, from its start until the rank learns that it is done
  kOnGpu,   // what a GPU did for an action: from when its stream came to it until it was done
};

// One slice. Plain data of a fixed size, so that recording one takes only some stores.
struct TraceSlice {
  static constexpr size_t kNameBytes = 32;
  static constexpr int64_t kOpen = -1;

  SliceKind kind = SliceKind::kAction;
  mesh::CollectiveOp op = mesh::CollectiveOp::kBarrier;  // kCall and kWait
  mesh::Axis axis = mesh::Axis::kWorld;                  // the group of a kCall or kWait
  schedule::Action action;                               // kAction
  int64_t step = 0;                                      // from 1
  int64_t begin_ns = 0;                                  // by the steady clock of the rank's host
  int64_t end_ns = kOpen;
  int64_t bytes = 0;    // kAction: live memory at its end; kCall: of the caller's buffer
  int32_t members = 0;  // kCall: ranks of the group
  int32_t peer = -1;    // kCall: global rank of the root or of the other side
  std::array<char, kNameBytes> label{};  // kCall, kWait: its first 31 bytes

  std::string_view label_text() const;
};

// Marks in a rank's GPU work, whose times are known afterwards.
class ActionMarks {
 public:
  virtual ~ActionMarks() = default;
  // Puts mark `mark` behind all GPU work so far. Does not wait.
  virtual void set(size_t mark) = 0;
  // When the GPU reached the mark, in nanoseconds of the host's steady clock. Waits for it.
  virtual int64_t ns_of(size_t mark) = 0;
};

// The slices of one rank, in the order in which they began.
struct RankTrace {
  int64_t rank = 0;
  bool cut = false;  // there were more than the recorder keeps
  std::vector<TraceSlice> slices;
};

// Records slices of a rank's steps into memory that is allocated once: recording allocates nothing
// and takes no lock. Switched off, a call costs one comparison. One thread.
class StepTracer {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);  // no slice: nothing to end
  static constexpr size_t kMostSlices = size_t{1} << 18;    // of a rank, 26 MiB

  // Room for `slices` slices; recording is off.
  void reserve(size_t slices);

  bool is_on() const { return on_; }
  void begin_step(int64_t step);  // from here on it is on
  void end_step();                // and off; calls under way are still ended

  // From here on every action has a mark at its begin and one at its end; nullptr ends this.
  void mark_actions(ActionMarks* marks);
  // Appends one kOnGpu for each action that was marked since the last call. Waits for the GPU.
  void add_gpu_slices();

  // Each begins a slice and returns the index to end it with; kNone if none was begun.
  size_t begin_action(const schedule::Action& action);
  size_t begin_call(mesh::CollectiveOp op, mesh::Axis axis, std::string_view label, int64_t bytes,
                    int64_t members, int64_t peer);
  size_t begin_wait(size_t call);  // kNone: for one that began before this was on
  // `bytes` is the live memory, for an action. Ending a slice again does nothing.
  void end(size_t place) {
    if (place != kNone) end_now(place);
  }
  void end_action(size_t place, int64_t live_bytes);

  // The recorded slices; open slices stay open.
  const std::vector<TraceSlice>& slices() const { return slices_; }
  // Ends a call at a given time, for a caller that knows better when it was done.
  std::vector<TraceSlice>& slices() { return slices_; }
  bool cut() const { return cut_; }
  void clear();  // gives the memory back

 private:
  size_t begin(const TraceSlice& slice);
  void end_now(size_t place);

  bool on_ = false;
  bool cut_ = false;
  int64_t step_ = 0;
  size_t step_place_ = kNone;
  size_t most_ = 0;
  std::vector<TraceSlice> slices_;
  ActionMarks* marks_ = nullptr;
  std::vector<size_t> marked_;  // places of actions, whose marks are 2 i and 2 i + 1
};

// Slices that one step of a rank with these actions needs: each action with the calls and waits
// within it, including those of tensor parallelism, and the step.
size_t slices_of_step(const std::vector<schedule::Action>& actions, const mesh::Degrees& degrees);

// Nanoseconds of this host's steady clock, as slices have them.
int64_t steady_ns();

}  // namespace smp::runinfo
