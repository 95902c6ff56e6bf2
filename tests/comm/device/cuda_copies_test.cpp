#include "smp/comm/device/cuda_copies.h"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace smp::device;

namespace {

// A GPU whose streams run when they are told to. CUDA's functions have no state to hold it in, so
// there is one.
struct FakeGpu {
  struct Event {
    bool is_recorded = false, has_passed = false;
  };
  struct Work {
    Event* waits_for = nullptr;
    Event* marks = nullptr;
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  struct Stream {
    std::deque<Work> queue;
  };

  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  Stream current;
  int destroyed_streams = 0, destroyed_events = 0, copies = 0, cleared_errors = 0, priority = 0;
  unsigned stream_flags = 0, event_flags = 0;
  int next_error = 0;  // of the next copy or registration
  std::vector<int> kinds;
  std::vector<const void*> pinned;

  // Runs what the streams can run; what waits for an event of the current stream waits for
  // `with_current`.
  void run(bool with_current) {
    bool ran = true;
    while (ran) {
      ran = false;
      for (const auto& stream : streams) ran |= run_one(*stream);
      if (with_current) ran |= run_one(current);
    }
  }
  bool run_one(Stream& stream) {
    if (stream.queue.empty()) return false;
    const Work work = stream.queue.front();
    if (work.waits_for != nullptr && !work.waits_for->has_passed) return false;
    stream.queue.pop_front();
    if (work.bytes > 0) memcpy(work.to, work.from, work.bytes);
    if (work.marks != nullptr) work.marks->has_passed = true;
    return true;
  }
};

FakeGpu* fake = nullptr;

FakeGpu::Stream& stream_of(void* stream) { return *static_cast<FakeGpu::Stream*>(stream); }
FakeGpu::Event& event_of(void* event) { return *static_cast<FakeGpu::Event*>(event); }

int taken_error() { return std::exchange(fake->next_error, 0); }

CudaRuntime fake_runtime() {
  constexpr int kNotReady = 600;
  CudaRuntime runtime;
  runtime.current_stream = [] { return static_cast<void*>(&fake->current); };
  runtime.cudaDeviceGetStreamPriorityRange = [](int* least, int* most) {
    *least = 0;
    *most = -5;
    return 0;
  };
  runtime.cudaStreamCreateWithPriority = [](void** stream, unsigned flags, int priority) {
    fake->stream_flags = flags;
    fake->priority = priority;
    fake->streams.push_back(std::make_unique<FakeGpu::Stream>());
    *stream = fake->streams.back().get();
    return 0;
  };
  runtime.cudaStreamDestroy = [](void*) { return ++fake->destroyed_streams, 0; };
  runtime.cudaStreamWaitEvent = [](void* stream, void* event, unsigned) {
    CHECK(event_of(event).is_recorded);
    FakeGpu::Work wait;
    wait.waits_for = &event_of(event);
    stream_of(stream).queue.push_back(wait);
    return 0;
  };
  runtime.cudaEventCreateWithFlags = [](void** event, unsigned flags) {
    fake->event_flags = flags;
    fake->events.push_back(std::make_unique<FakeGpu::Event>());
    *event = fake->events.back().get();
    return 0;
  };
  runtime.cudaEventDestroy = [](void*) { return ++fake->destroyed_events, 0; };
  runtime.cudaEventRecord = [](void* event, void* stream) {
    event_of(event).is_recorded = true;
    FakeGpu::Work mark;
    mark.marks = &event_of(event);
    stream_of(stream).queue.push_back(mark);
    return 0;
  };
  runtime.cudaEventQuery = [](void* event) { return event_of(event).has_passed ? 0 : kNotReady; };
  runtime.cudaEventSynchronize = [](void*) { return fake->run(true), 0; };
  runtime.cudaMemcpyAsync = [](void* to, const void* from, size_t bytes, int kind, void* stream) {
    ++fake->copies;
    fake->kinds.push_back(kind);
    FakeGpu::Work copy;
    copy.to = to;
    copy.from = from;
    copy.bytes = bytes;
    stream_of(stream).queue.push_back(copy);
    return taken_error();
  };
  runtime.cudaHostRegister = [](void* memory, size_t, unsigned) {
    fake->pinned.push_back(memory);
    return taken_error();
  };
  runtime.cudaHostUnregister = [](void* memory) { return std::erase(fake->pinned, memory), 0; };
  runtime.cudaGetLastError = [] { return ++fake->cleared_errors, 0; };
  runtime.cudaGetErrorString = [](int error) { return error == 2 ? "out of memory" : "unknown"; };
  return runtime;
}

struct Copies final : CudaCopies {
  using CudaCopies::CudaCopies;
  bool holds(const void*) const override { return true; }
};

struct Fixture {
  Fixture() { fake = &gpu; }
  ~Fixture() { fake = nullptr; }
  FakeGpu gpu;
  const CudaRuntime runtime = fake_runtime();
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a copy runs after the point it was given, beside later kernels") {
  Copies copies(runtime);
  CHECK(gpu.streams.size() == 2);
  CHECK(gpu.stream_flags == 1);  // it does not wait for the default stream
  CHECK(gpu.priority == -5);
  std::string on_device = "device", on_host = "......";
  const CopyPtr behind = copies.until_now();  // of a kernel that still runs
  CHECK(gpu.event_flags == 2);                // without times
  const CopyPtr copy = copies.start_to_host(on_host.data(), on_device.data(), 6, *behind);
  gpu.run(false);
  CHECK_FALSE(copy->done());
  CHECK(gpu.cleared_errors == 1);  // "not ready" is no error that others shall find
  CHECK(on_host == "......");
  gpu.run_one(gpu.current);  // the kernel ends; others are enqueued behind it
  gpu.run(false);
  CHECK(copy->done());
  CHECK(on_host == "device");
  CHECK(gpu.kinds == std::vector<int>{2});
}

TEST_CASE_FIXTURE(Fixture, "the two directions have a stream each, and work can follow a copy") {
  Copies copies(runtime);
  std::string on_device = "......", on_host = "host..", back = "......";
  const CopyPtr now = copies.until_now();
  const CopyPtr there = copies.start_to_device(on_device.data(), on_host.data(), 6, *now);
  there->follow();
  CHECK(gpu.current.queue.size() == 2);  // the mark of `now`, and the wait for the copy
  const CopyPtr kernel = copies.until_now();
  const CopyPtr here = copies.start_to_host(back.data(), on_device.data(), 6, *kernel);
  here->wait();
  CHECK(back == "host..");
  CHECK(gpu.kinds == std::vector<int>{1, 2});
  const CopyPtr nothing = copies.start_to_host(nullptr, nullptr, 0, *now);
  CHECK(gpu.copies == 2);
  nothing->wait();
}

TEST_CASE_FIXTURE(Fixture, "what CUDA refuses is told with its words, and nothing is left behind") {
  {
    Copies copies(runtime);
    std::string memory = "memory";
    copies.pin(memory.data(), 6);
    CHECK(gpu.pinned == std::vector<const void*>{memory.data()});
    copies.unpin(memory.data());
    CHECK(gpu.pinned.empty());
    gpu.next_error = 2;
    CHECK_THROWS_WITH_AS(copies.pin(memory.data(), 6),
                         "CUDA: pinning 6 bytes of host memory failed: out of memory",
                         std::runtime_error);
    const CopyPtr now = copies.until_now();
    gpu.next_error = 2;
    CHECK_THROWS_WITH_AS(copies.start_to_device(memory.data(), memory.data(), 1, *now),
                         "CUDA: copying to the device failed: out of memory", std::runtime_error);
  }
  CHECK(gpu.destroyed_streams == 2);
  CHECK(gpu.destroyed_events == int(gpu.events.size()));
}

TEST_CASE_FIXTURE(Fixture, "a stream of its own follows the current one") {
  const CudaStream stream(runtime);
  stream.follow_current();
  const CopyPtr end = stream.until_now();
  gpu.run(false);
  CHECK_FALSE(end->done());
  gpu.run(true);
  CHECK(end->done());
}

TEST_CASE("a process without the CUDA runtime is told which function is missing") {
  CHECK_THROWS_WITH_AS(
      CudaRuntime::loaded([]() -> void* { return nullptr; }),
      "tensors on GPUs need the function cudaDeviceGetStreamPriorityRange, which no "
      "library loaded by torch has: install torch with CUDA",
      std::runtime_error);
}
