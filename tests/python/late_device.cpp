#include <cstdio>
#include <cstdlib>

#include "device.h"
#include "late_memory.h"

// A device for machines without one: tensors on the CPU but those of bytes lie on it, and copies
// come late (late_memory.h), so that what uses a result too early is seen, and so are calls that do
// not keep their order beside those of the host.
namespace smp::pytorch {
namespace {

// What is asked of it is done when it is followed, so nothing is left to come behind.
class NoPoint final : public Device::Point {
 public:
  void follow() const override {}
};

// Of all groups of the process, which ends badly if nothing was copied, or something stays pinned.
class Counts : public test::CountedCopies {
 public:
  ~Counts() {
    if (to_host > 0 && to_device > 0 && pinned == 0) return;
    std::fprintf(stderr, "copies to the host: %d, to the device: %d, pinned at the end: %d\n",
                 int(to_host), int(to_device), int(pinned));
    std::abort();
  }
};

test::CountedCopies& counts() {
  static Counts all;
  return all;
}

class LateDevice final : public Device {
 public:
  bool holds(const at::Tensor& tensor) const override { return tensor.scalar_type() != at::kByte; }
  std::unique_ptr<Point> now() const override { return std::make_unique<NoPoint>(); }
  void keep(const at::Tensor& /*tensor*/) const override {}
  void enter() override {}
  device::DeviceMemory& memory() override { return memory_; }

 private:
  test::LateMemory memory_{counts()};
};

}  // namespace

bool is_taken(const at::Device& device) { return device.is_cpu(); }

std::unique_ptr<Device> open_device_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() == at::kByte) return nullptr;
  return std::make_unique<LateDevice>();
}

}  // namespace smp::pytorch
