#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "smp/tensorfiles/checkpoint/checkpoint_shards.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"

// Writes one rank's part of each checkpoint in the background: start() stops the caller only for
// the copy to host memory. At most one save is under way. A failure stays until done(), wait() or
// the next start() throws it. Used by one thread; the writing runs on another thread.
namespace smp::checkpoint {

class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointStore& store, int64_t rank,
                   const std::vector<safetensors::TensorPiece>& pieces,
                   files::FileCalls& calls = files::system_file_calls());
  ~CheckpointWriter();  // waits; a failure that nobody asked for is lost with its exception
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  int64_t bytes() const { return shards_.bytes(); }

  // Waits for the save that is under way, copies, and writes in the background.
  void start(int64_t step);
  // Work of another kind in the background, e.g. the commit: waits like start().
  void then(std::function<void()> work);

  bool done();  // nothing is under way
  void wait();

 private:
  void run(std::function<void()> work);
  void rethrow();

  CheckpointStore& store_;
  files::FileCalls& calls_;
  RankShards shards_;
  std::thread thread_;
  std::atomic<bool> busy_ = false;
  std::exception_ptr failure_;  // of the thread; read when it is not busy
};

}  // namespace smp::checkpoint
