#include "cuda/device_marks.h"

#include <c10/cuda/CUDAStream.h>

#include <cmath>
#include <limits>
#include <utility>

#include "cuda/cuda_runtime.h"
#include "smp/plan/runinfo/step_trace.h"

namespace smp::cuda {
namespace {

constexpr int kRounds = 16;  // the quickest one counts, as between hosts (Cristian 1989)

void record(cudaEvent_t event) {
  check(cudaEventRecord(event, c10::cuda::getCurrentCUDAStream().stream()), "recording an event");
}

}  // namespace

DeviceMarks::~DeviceMarks() {
  for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
  if (origin_ != nullptr) cudaEventDestroy(origin_);
}

void DeviceMarks::align() {
  if (origin_ == nullptr) check(cudaEventCreate(&origin_), "creating an event");
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "waiting for a stream");
  cudaEvent_t probe = nullptr;
  check(cudaEventCreate(&probe), "creating an event");
  int64_t quickest = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const int64_t before = runinfo::steady_ns();
    record(probe);
    check(cudaEventSynchronize(probe), "waiting for an event");
    const int64_t after = runinfo::steady_ns();
    if (after - before >= quickest) continue;
    quickest = after - before;
    origin_ns_ = before + quickest / 2;
    std::swap(probe, origin_);
  }
  cudaEventDestroy(probe);
}

void DeviceMarks::set(size_t mark) {
  while (marks_.size() <= mark) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "creating an event");
    marks_.push_back(event);
  }
  record(marks_[mark]);
}

int64_t DeviceMarks::ns_of(size_t mark) {
  check(cudaEventSynchronize(marks_.at(mark)), "waiting for an event");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, origin_, marks_[mark]), "reading the time of an event");
  return origin_ns_ + std::llround(1e6 * static_cast<double>(milliseconds));
}

}  // namespace smp::cuda
