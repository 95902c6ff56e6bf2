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

// What a rank reads of each step's global batch: `microbatches` times `micro_batch` samples from
// `first_sample` on, and of each the fields that its layers want.
struct BatchShare {
  int64_t first_sample = 0;
  int64_t microbatches = 0;
  int64_t micro_batch = 0;
  int64_t length = 0;     // L: tokens of a sequence
  int64_t sequences = 1;  // of a sample, in `tokens`
  bool tokens = false, targets = false, document_starts = false;
  int64_t readers = 0;  // chunks of layers that read: how often each microbatch is taken

  int64_t microbatch_values() const;  // int64, of all fields
  // Its fields in memory of that many, one behind the other.
  TokenBuffers microbatch_in(int64_t* values) const;
  // Of the batch that is read ahead.
  int64_t bytes() const {
    return microbatches * microbatch_values() * static_cast<int64_t>(sizeof(int64_t));
  }
};

// Of a rank of a plan whose model reads tokens; readers 0 where the rank's layers read none.
BatchShare batch_share(const Plan& plan, const layout::RankLayout& layout);

// Reads a rank's samples one batch ahead, on a thread of its own: as soon as a microbatch was taken
// the same one of the next step is read into its place. It keeps share.bytes(). What a read throws
// is thrown by the read() that wants these samples, and nothing is read ahead from then on. Used by
// one thread.
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

  // As TokenData::read(): a copy of what was read ahead, once it is there. What is not read ahead,
  // samples of an earlier step say, is read on the spot.
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
