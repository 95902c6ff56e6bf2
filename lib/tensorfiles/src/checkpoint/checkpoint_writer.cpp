#include "smp/tensorfiles/checkpoint/checkpoint_writer.h"

#include <utility>

#include "smp/plan/system/signals_blocked.h"

namespace smp::checkpoint {

CheckpointWriter::CheckpointWriter(CheckpointStore& store, int64_t rank,
                                   const std::vector<safetensors::TensorPiece>& pieces,
                                   files::FileCalls& calls)
    : store_(store), calls_(calls), shards_(rank, pieces) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::start(int64_t step) {
  wait();
  shards_.copy();
  run([this, step] { shards_.write(store_.begin(step), step, calls_); });
}

void CheckpointWriter::then(std::function<void()> work) {
  wait();
  run(std::move(work));
}

bool CheckpointWriter::done() {
  if (busy_.load(std::memory_order_acquire)) return false;
  rethrow();
  return true;
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  rethrow();
}

void CheckpointWriter::run(std::function<void()> work) {
  busy_.store(true, std::memory_order_relaxed);
  thread_ = system::start_without_signals([this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
    }
    busy_.store(false, std::memory_order_release);
  });
}

void CheckpointWriter::rethrow() {
  if (const std::exception_ptr failure = std::exchange(failure_, nullptr)) {
    std::rethrow_exception(failure);
  }
}

}  // namespace smp::checkpoint
