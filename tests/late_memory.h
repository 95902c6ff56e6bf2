#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "smp/comm/device/device_memory.h"

// The memory of a device that is the host's.
namespace smp::test {

struct CountedCopies {
  std::atomic<int64_t> to_host{0}, to_device{0}, pinned{0};
  std::atomic<int64_t> pinned_bytes{0}, most_pinned_bytes{0};  // of all ranks together
  std::atomic<int64_t> cache_flushes{0};                       // what the GPUs say of theirs
};

// All memory is the device's. What is copied is read as late as can be: only when it has been asked
// for a few times, is waited for, or, on the device, is to be seen; so what changes a buffer too
// early is seen.
class LateMemory final : public device::DeviceMemory {
 public:
  explicit LateMemory(CountedCopies& counts) : counts_(counts) {}

  bool holds(const void* /*data*/) const override { return true; }
  void pin(void* memory, int64_t bytes) override {
    if (bytes == 0) throw std::runtime_error("no memory of no bytes can be pinned");  // by CUDA
    ++counts_.pinned;
    pinned_[memory] = bytes;
    const int64_t now = counts_.pinned_bytes += bytes;
    int64_t most = counts_.most_pinned_bytes;
    while (now > most && !counts_.most_pinned_bytes.compare_exchange_weak(most, now)) {
    }
  }
  void unpin(void* memory) override {
    --counts_.pinned;
    counts_.pinned_bytes -= pinned_.extract(memory).mapped();
  }
  device::CopyPtr until_now() override { return computing_->start(nullptr, nullptr, 0, 2); }
  device::CopyPtr start_to_host(void* to, const void* from, int64_t bytes,
                                device::Copy& /*behind*/) override {
    ++counts_.to_host;
    return to_host_->start(to, from, bytes, 3);
  }
  device::CopyPtr start_to_device(void* to, const void* from, int64_t bytes,
                                  device::Copy& /*behind*/) override {
    ++counts_.to_device;
    return to_device_->start(to, from, bytes, 2);
  }

 private:
  // Copies that are made in their order, whether or not somebody still looks at them.
  class LateStream : public std::enable_shared_from_this<LateStream> {
   public:
    device::CopyPtr start(void* to, const void* from, int64_t bytes, int asked) {
      copies_.push_back({to, from, bytes});
      return std::make_unique<LateCopy>(shared_from_this(), ended_ + copies_.size(), asked);
    }
    void run_to(size_t number) {
      for (; ended_ < number; ++ended_) {
        const One& next = copies_.front();
        if (next.bytes > 0) std::memcpy(next.to, next.from, static_cast<size_t>(next.bytes));
        copies_.pop_front();
      }
    }
    size_t ended() const { return ended_; }

   private:
    struct One {
      void* to;
      const void* from;
      int64_t bytes;
    };
    std::deque<One> copies_;
    size_t ended_ = 0;
  };

  class LateCopy final : public device::Copy {
   public:
    LateCopy(std::shared_ptr<LateStream> stream, size_t number, int asked)
        : stream_(std::move(stream)), number_(number), left_(asked) {}
    bool done() override {
      if (stream_->ended() < number_ && --left_ == 0) stream_->run_to(number_);
      return stream_->ended() >= number_;
    }
    void wait() override { stream_->run_to(number_); }
    void follow() override { stream_->run_to(number_); }

   private:
    const std::shared_ptr<LateStream> stream_;
    const size_t number_;
    int left_;
  };

  const std::shared_ptr<LateStream> computing_ = std::make_shared<LateStream>();
  const std::shared_ptr<LateStream> to_host_ = std::make_shared<LateStream>();
  const std::shared_ptr<LateStream> to_device_ = std::make_shared<LateStream>();
  CountedCopies& counts_;
  std::map<void*, int64_t> pinned_;
};

}  // namespace smp::test
