#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp::comm {

// One call as a dry run records it.
struct RecordedCall {
  std::string label;
  mesh::CollectiveOp op;
  std::vector<int> group;  // global ranks of the members
  int64_t count = 0;
  DType dtype = DType::kU8;
  int64_t wire_bytes = 0;
  int peer = -1;  // rank of the group: the root or the other side; -1: none
};

// The calls of one rank, in order, on its communicator and on all that were split off it. Safe from
// any thread.
class Recording {
 public:
  void add(RecordedCall call);
  std::vector<RecordedCall> calls() const;

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

// Makes a communicator for rank `rank` of `size` that moves no data. It records every call, which
// is done at once. It never touches buffers, which may be null. It checks arguments as real ones
// do.
std::unique_ptr<Communicator> make_recording_communicator(int rank, int size,
                                                          std::shared_ptr<Recording> recording);

}  // namespace smp::comm
