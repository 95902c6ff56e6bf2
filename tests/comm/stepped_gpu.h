#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "smp/comm/device/device_memory.h"

namespace smp::test {

// A GPU whose streams do nothing before they are told: its kernels (`compute`) and its copies, each
// behind the kernels that it comes behind. What marks a point of the kernels takes a while to get
// there: who looks before the GPU is told anything hears "not yet" at first.
class SteppedGpu final : public device::DeviceMemory {
 public:
  int to_host = 0, to_device = 0;  // copies that have been asked for

  void compute(std::function<void()> kernel) { kernels_.push_back({std::move(kernel), 0}); }
  void finish_kernels() { finish(kernels_, kernels_.size()), ++steps_; }
  // And the kernels before them.
  void finish_copies() { finish(copies_, copies_.size()), ++steps_; }
  // Those that need no kernel that has not run.
  void finish_free_copies() {
    for (size_t i = 0; i < copies_.size() && copies_[i].behind <= kernels_run(); ++i)
      finish(copies_, i + 1);
    ++steps_;
  }

  bool holds(const void* /*data*/) const override { return true; }
  void pin(void* /*memory*/, int64_t /*bytes*/) override {}
  void unpin(void* /*memory*/) override {}
  device::CopyPtr until_now() override { return std::make_unique<Mark>(*this, kernels_, true); }
  device::CopyPtr start_to_host(void* to, const void* from, int64_t bytes,
                                device::Copy& behind) override {
    ++to_host;
    return copy(to, from, bytes, dynamic_cast<Mark&>(behind).place());
  }
  device::CopyPtr start_to_device(void* to, const void* from, int64_t bytes,
                                  device::Copy& behind) override {
    ++to_device;
    return copy(to, from, bytes, dynamic_cast<Mark&>(behind).place());
  }

 private:
  struct Asked {
    std::function<void()> what;
    size_t behind;  // so many kernels
    bool is_done = false;
  };
  using Stream = std::vector<Asked>;

  class Mark final : public device::Copy {
   public:
    Mark(SteppedGpu& gpu, Stream& stream, bool is_on_its_way = false)
        : gpu_(gpu),
          stream_(stream),
          place_(stream.size()),
          made_at_(gpu.steps_),
          is_on_its_way_(is_on_its_way) {}
    bool done() override {
      if (std::exchange(is_on_its_way_, false) && gpu_.steps_ == made_at_) return false;
      return place_ == 0 || stream_[place_ - 1].is_done;
    }
    void wait() override {
      is_on_its_way_ = false;
      gpu_.finish(stream_, place_);
    }
    void follow() override { wait(); }
    size_t place() const { return place_; }

   private:
    SteppedGpu& gpu_;
    Stream& stream_;
    const size_t place_;
    const int64_t made_at_;
    bool is_on_its_way_;
  };

  size_t kernels_run() const {
    size_t run = 0;
    while (run < kernels_.size() && kernels_[run].is_done) ++run;
    return run;
  }
  device::CopyPtr copy(void* to, const void* from, int64_t bytes, size_t behind) {
    copies_.push_back({[=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }, behind});
    return std::make_unique<Mark>(*this, copies_);
  }
  void finish(Stream& stream, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (stream[i].is_done) continue;
      if (stream[i].behind > 0) finish(kernels_, stream[i].behind);
      stream[i].what();
      stream[i].is_done = true;
    }
  }

  Stream kernels_, copies_;
  int64_t steps_ = 0;
};

}  // namespace smp::test
