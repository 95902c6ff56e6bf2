#include "health/gpu_watch.h"

#include <condition_variable>
#include <mutex>

#include "smp/plan/system/signals_blocked.h"

namespace smp::health {
namespace {

// A figure that a GPU does not have (power, on some) stays 0.
GpuSample sample_of(const Nvml& nvml, unsigned index, Nvml::Device device) {
  GpuSample sample;
  sample.usage.gpu = static_cast<int>(index);
  Nvml::Utilization utilization{};
  if (nvml.utilization(device, &utilization) == Nvml::kSuccess)
    sample.usage.busy_percent = static_cast<int>(utilization.gpu);
  Nvml::Memory memory{};
  if (nvml.memory(device, &memory) == Nvml::kSuccess) {
    sample.usage.memory_bytes = static_cast<int64_t>(memory.used);
    sample.usage.memory_total_bytes = static_cast<int64_t>(memory.total);
  }
  unsigned milliwatts = 0;
  if (nvml.power(device, &milliwatts) == Nvml::kSuccess) sample.usage.power_w = milliwatts / 1000.0;
  sample.processes = processes_on(nvml, device);
  return sample;
}

}  // namespace

struct GpuWatch::State {
  Nvml nvml;
  std::mutex mutex;
  std::condition_variable wake;
  bool over = false;
  std::vector<GpuSample> latest;

  void run(std::chrono::milliseconds every) {
    unsigned count = 0;
    if (nvml.init() != Nvml::kSuccess || nvml.count(&count) != Nvml::kSuccess) return;
    std::unique_lock lock(mutex);
    while (!over) {
      lock.unlock();
      std::vector<GpuSample> samples;
      for (unsigned i = 0; i < count; ++i) {
        Nvml::Device device = nullptr;
        if (nvml.device(i, &device) == Nvml::kSuccess)
          samples.push_back(sample_of(nvml, i, device));
      }
      lock.lock();
      latest = std::move(samples);
      wake.wait_for(lock, every, [&] { return over; });
    }
  }
};

GpuWatch::GpuWatch(std::chrono::milliseconds every) {
  auto state = std::make_shared<State>();
  if (!state->nvml.load()) return;
  state_ = state;
  system::start_without_signals([state, every] { state->run(every); }).detach();
}

GpuWatch::~GpuWatch() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->wake.notify_one();
}

std::vector<GpuSample> GpuWatch::latest() const {
  if (state_ == nullptr) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->latest;
}

}  // namespace smp::health
