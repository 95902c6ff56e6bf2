#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "smp/plan/data/token_samples.h"

namespace smp {
struct Plan;
}
namespace smp::layout {
struct RankLayout;
}

namespace smp::data {

// A rank's share of each step's global batch: `microbatches` times `micro_batch` samples from
// `first_sample` on, and of each sample the fields that the rank's layers read.
struct BatchShare {
  int64_t first_sample = 0;
  int64_t microbatches = 0;
  int64_t micro_batch = 0;
  int64_t length = 0;     // L: tokens of a sequence
  int64_t sequences = 1;  // of a sample, in `tokens`
  bool tokens = false, targets = false, document_starts = false;
  int64_t readers = 0;  // chunks of layers that read: how often each microbatch is taken

  int64_t microbatch_values() const;  // int64, of all fields
  // Pointers to its fields in a buffer of microbatch_values(), one behind the other.
  TokenBuffers microbatch_in(int64_t* values) const;
  // Bytes of the batch that is read ahead.
  int64_t bytes() const {
    return microbatches * microbatch_values() * static_cast<int64_t>(sizeof(int64_t));
  }
};

// The share of a rank whose model reads tokens. readers is 0 if the rank's layers read none.
BatchShare batch_share(const Plan& plan, const layout::RankLayout& layout);

// Reads a rank's samples one batch ahead, on a thread of its own. When a microbatch has been taken,
// the same microbatch of the next step is read into its place. The buffers take share.bytes(). If a
// read throws, the read() that wants these samples throws it, and nothing is read ahead from then
// on. Used by one thread.
class ReadAhead {
 public:
  // As TokenData::read(); called on the thread and on the user's at once.
  using Read = std::function<void(int64_t step, int64_t first, int64_t count, const TokenBuffers&)>;

  ReadAhead(Read read, const BatchShare& share);
  ~ReadAhead();  // waits for the read that is under way
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Begins to read steps [first_step, last_step). Once.
  void start(int64_t first_step, int64_t last_step);

  // As TokenData::read(): copies the samples once they are read ahead. Samples that are not read
  // ahead, such as those of an earlier step, are read at once.
  void read(int64_t step, int64_t first, int64_t count, const TokenBuffers& out);

 private:
  struct Place {
    std::vector<int64_t> values;
    int64_t step = 0;  // that it has, or will have next
    int64_t left = 0;  // readers that have yet to take it; 0: it is being read
  };

  void read_all(int64_t first_step, int64_t last_step);
  void copy(Place& place, const TokenBuffers& out) const;

  const Read read_;
  const BatchShare share_;
  std::vector<Place> places_;  // by microbatch

  std::mutex mutex_;  // of what follows, and of `step` and `left`
  std::condition_variable changed_;
  bool closed_ = false;
  int64_t end_ = 0;  // the step behind the last one that is read ahead
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace smp::data
