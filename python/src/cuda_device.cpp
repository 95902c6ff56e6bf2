#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "device.h"
#include "smp/comm/device/cuda_copies.h"

// A GPU by torch's interface of all devices, which needs no library of CUDA here. Copies go through
// the CUDA runtime that torch has loaded.
namespace smp::pytorch {
namespace {

using c10::impl::VirtualGuardImpl;

constexpr int kHigh = -1;  // the priority of a stream

class StreamPoint final : public Device::Point {
 public:
  explicit StreamPoint(const c10::Stream& stream) : event_(stream.device_type()) {
    event_.record(stream);
  }
  void follow() const override {
    event_.block(VirtualGuardImpl(event_.device_type()).getStream(event_.device()));
  }

 private:
  c10::Event event_;
};

// The copies of a device whose current stream torch knows.
class CopiesOfDevice final : public device::CudaCopies {
 public:
  using device::CudaCopies::CudaCopies;
  bool holds(const void* /*data*/) const override { return true; }
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const at::Device& device)
      : device_(device), guard_(device.type()), runtime_(device::CudaRuntime::loaded([this] {
          return guard_.getStreamNativeHandle(guard_.getStream(device_));
        })) {}

  bool holds(const at::Tensor& tensor) const override {
    if (tensor.device().is_cpu()) return false;
    TORCH_CHECK(tensor.device() == device_, "smp: a tensor on ", tensor.device(),
                " in a process group whose first tensors were on ", device_,
                ": a rank uses one device per process group");
    return true;
  }
  std::unique_ptr<Point> now() const override {
    return std::make_unique<StreamPoint>(guard_.getStream(device_));
  }
  void keep(const at::Tensor& tensor) const override {
    if (!tensor.device().is_cpu()) tensor.record_stream(guard_.getStream(device_));
  }
  void enter() override {
    guard_.setDevice(device_);
    guard_.exchangeStream(guard_.getNewStream(device_, kHigh));
    copies_.emplace(runtime_);
  }
  device::DeviceMemory& memory() override { return *copies_; }

 private:
  const at::Device device_;
  const VirtualGuardImpl guard_;
  const device::CudaRuntime runtime_;
  std::optional<CopiesOfDevice> copies_;  // of the thread that copies
};

}  // namespace

bool is_taken(const at::Device& device) { return device.is_cpu() || device.is_cuda(); }

std::unique_ptr<Device> open_device_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cuda()) return nullptr;
  return std::make_unique<CudaDevice>(tensor.device());
}

}  // namespace smp::pytorch
