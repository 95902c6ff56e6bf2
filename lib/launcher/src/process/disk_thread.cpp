#include "smp/launcher/process/disk_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "smp/plan/system/file_descriptor.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::process {

class DiskThread::Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue() : done_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void add(size_t bytes, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({bytes, std::move(work)});
    bytes_ += bytes;
    if (!started_) {
      system::start_without_signals([self = shared_from_this()] { self->run(); }).detach();
      started_ = true;
    }
    wake_.notify_one();
  }

  bool full() const {
    const std::lock_guard lock(mutex_);
    return bytes_ > kMostBytes;
  }

  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, time, [&] { return waiting_.empty() && !busy_; });
  }

  std::exception_ptr take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, nullptr);
  }

  int event_fd() const { return done_.number(); }

  void forget_done() const {
    uint64_t count = 0;
    (void)!read(done_.number(), &count, sizeof count);
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_one();
  }

 private:
  struct Piece {
    size_t bytes;
    std::function<void()> work;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Piece piece = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr error;
      try {
        piece.work();
      } catch (...) {
        error = std::current_exception();
      }
      piece.work = nullptr;
      lock.lock();
      if (!error_) error_ = error;
      busy_ = false;
      bytes_ -= piece.bytes;
      if (waiting_.empty()) idle_.notify_all();
      const uint64_t one = 1;
      (void)!write(done_.number(), &one, sizeof one);
    }
  }

  system::FileDescriptor done_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Piece> waiting_;
  size_t bytes_ = 0;  // of waiting and running pieces
  std::exception_ptr error_;
  bool started_ = false;
  bool busy_ = false;
  bool closed_ = false;
};

DiskThread::DiskThread() : queue_(std::make_shared<Queue>()) {}

DiskThread::~DiskThread() { queue_->close(); }

void DiskThread::add(size_t bytes, std::function<void()> work) {
  queue_->add(bytes, std::move(work));
}

bool DiskThread::full() const { return queue_->full(); }

bool DiskThread::wait(std::chrono::milliseconds time) { return queue_->wait(time); }

std::exception_ptr DiskThread::take_error() { return queue_->take_error(); }

int DiskThread::event_fd() const { return queue_->event_fd(); }

void DiskThread::forget_done() { queue_->forget_done(); }

}  // namespace smp::process
