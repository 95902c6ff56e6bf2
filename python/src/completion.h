#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "work.h"

namespace smp::pytorch {

// A thread, started by the first work that has a future, that completes such works. It looks at
// them in turn: waiting in the communicator would take CPUs from the threads that compute
// meanwhile.
class Completion {
 public:
  ~Completion() { stop(); }

  void watch(c10::intrusive_ptr<TorchWork> work);
  // Returns when what was watched is complete.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::vector<c10::intrusive_ptr<TorchWork>> arrived_;
  std::condition_variable filled_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace smp::pytorch
