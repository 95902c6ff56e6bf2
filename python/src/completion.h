#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "work.h"

namespace smp::pytorch {

// Completes works that somebody watches: by a future, or with a time-out of his own. Two threads,
// started by the first such work: collectives end in their order, so the first can be waited for;
// messages end in any, so they are looked at in turn.
class Completion {
 public:
  ~Completion() { stop(); }

  void watch(c10::intrusive_ptr<TorchWork> work, bool is_message);
  // Returns when what was watched is complete.
  void stop();

 private:
  struct Queue {
    std::vector<c10::intrusive_ptr<TorchWork>> works;
    std::condition_variable filled;
    std::thread thread;
  };

  void run(Queue& queue, bool in_order);

  std::mutex mutex_;
  Queue collectives_, messages_;
  bool stopping_ = false;
};

}  // namespace smp::pytorch
