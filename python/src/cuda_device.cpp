#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "device.h"

// A GPU by way of torch's interface of all devices, which needs no library of CUDA here; only what
// pins memory is CUDA's own, and is found among the libraries that torch has loaded.
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
  bool passed() const { return event_.query(); }
  void wait() const { event_.synchronize(); }

 private:
  c10::Event event_;
};

class StreamCopy final : public device::Copy {
 public:
  explicit StreamCopy(const c10::Stream& stream) : end_(stream) {}
  bool done() override { return end_.passed(); }
  void wait() override { end_.wait(); }
  void follow() override { end_.follow(); }

 private:
  const StreamPoint end_;
};

// Functions of the library libcudart.
template <class Function>
Function cuda_function(const char* name) {
  auto* const found = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(found != nullptr, "smp: tensors on GPUs need the function ", name,
              ", which no library loaded by torch has");
  return found;
}

class CudaDevice final : public Device, public device::DeviceMemory {
 public:
  explicit CudaDevice(const at::Device& device)
      : device_(device),
        guard_(device.type()),
        to_host_(guard_.getNewStream(device, kHigh)),
        to_device_(guard_.getNewStream(device, kHigh)),
        register_(cuda_function<Register>("cudaHostRegister")),
        unregister_(cuda_function<Unregister>("cudaHostUnregister")) {}

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
  }
  device::DeviceMemory& memory() override { return *this; }

  bool holds(const void* /*data*/) const override { return true; }
  void pin(void* memory, int64_t bytes) override {
    const int error = register_(memory, size_t(bytes), 0);
    TORCH_CHECK(error == 0, "smp: CUDA failed to pin ", bytes, " bytes of host memory: error ",
                error);
  }
  void unpin(void* memory) override { unregister_(memory); }
  device::CopyPtr until_now() override {
    return std::make_unique<StreamCopy>(guard_.getStream(device_));
  }
  device::CopyPtr start_to_host(void* to, const void* from, int64_t bytes,
                                device::Copy& behind) override {
    return copy(on_host(to, bytes), on_device(const_cast<void*>(from), bytes), to_host_, behind);
  }
  device::CopyPtr start_to_device(void* to, const void* from, int64_t bytes,
                                  device::Copy& behind) override {
    return copy(on_device(to, bytes), on_host(const_cast<void*>(from), bytes), to_device_, behind);
  }

 private:
  using Register = int (*)(void*, size_t, unsigned);
  using Unregister = int (*)(void*);

  static at::Tensor on_host(void* data, int64_t bytes) {
    return at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte));
  }
  at::Tensor on_device(void* data, int64_t bytes) const {
    return at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  }
  device::CopyPtr copy(const at::Tensor& to, const at::Tensor& from, const c10::Stream& stream,
                       device::Copy& behind) const {
    const c10::StreamGuard there(stream);
    behind.follow();
    if (to.numel() > 0) to.copy_(from, /*non_blocking=*/true);
    return std::make_unique<StreamCopy>(stream);
  }

  const at::Device device_;
  const VirtualGuardImpl guard_;
  const c10::Stream to_host_, to_device_;
  const Register register_;
  const Unregister unregister_;
};

}  // namespace

bool is_taken(const at::Device& device) { return device.is_cpu() || device.is_cuda(); }

std::unique_ptr<Device> open_device_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cuda()) return nullptr;
  return std::make_unique<CudaDevice>(tensor.device());
}

}  // namespace smp::pytorch
