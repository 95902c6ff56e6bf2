#pragma once

#include <string_view>
#include <vector>

#include "groups/shm/group.h"

namespace smp::groups {

// One rank's side of a window. Its gathers have their own lane, because they need no turn among the
// group's collectives. A gather waits for one peer after the other: until the peer has shown its
// memory often enough. Then the gather reads that memory in place. A window must end before its
// group.
class GroupWindow final : public comm::PeerWindow, private progress::Member {
 public:
  // `opened_by`: the number of the call that opened it. The entries of that call say where each
  // rank's memory lies and how often the rank had shown its earlier windows.
  GroupWindow(Group& group, DType dtype, uint64_t opened_by);
  ~GroupWindow() override;

  void show() override;
  comm::WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                       std::string_view label) override;

 private:
  int global(int rank) const override { return member().global(rank); }
  std::optional<segment::Failure> failure() const override { return member().failure(); }
  bool has_left(int rank) const override { return member().has_left(rank); }
  bool has_abandoned(int rank) const override { return member().has_abandoned(rank); }
  bool has_called(int, const progress::Call&) const override {
    return false;
  }  // the peer has not shown its memory often enough
  void check_calls(const progress::Operation&) const override {}
  int awaited(progress::Operation& op) const override {
    const int peer = op.awaited();  // the peer may have acted meanwhile
    return peer < 0 ? -1 : global(peer);
  }
  void note(progress::Operation& op) override { group_.note(op); }
  void finished(const progress::Operation& op) override { group_.finished(op); }
  const progress::Member& member() const { return group_; }

  struct Elements {
    int64_t begin, stride, count;
  };
  progress::Program run_gather(progress::Operation& op, Elements elements, uint64_t shown,
                               std::byte* out);

  Group& group_;
  const DType dtype_;
  std::vector<const std::byte*> memory_;  // by rank
  std::vector<uint64_t> shown_before_;
  uint64_t gathers_ = 0;
  progress::Lane lane_;
};

}  // namespace smp::groups
