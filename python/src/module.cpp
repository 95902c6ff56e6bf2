#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>

#include "backend.h"
#include "call_logs.h"
#include "store_rendezvous.h"

// The Python module smp_torch._backend.
namespace smp::pytorch {
namespace {

void outside_python(const std::function<void()>& run) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return run();
  const py::gil_scoped_release released;
  run();
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& group) {
  auto communicator = rendezvous(group, RendezvousEnvironment::read());
  call_logs().add(place_of(group), communicator->call_log());
  return c10::make_intrusive<SmpBackend>(std::move(communicator), place_of(group),
                                         timeout_of(group), outside_python);
}

// The ranks that are left, before they are a process group again.
class Left {
 public:
  explicit Left(comm::Survivors survivors) : survivors_(std::move(survivors)) {}
  int rank() const { return survivors_.world->rank(); }
  const std::vector<int>& former() const { return survivors_.former; }
  // What the first of them says.
  std::string from_first(const std::string& text) {
    std::array<char, 256> bytes{};
    TORCH_CHECK(text.size() < bytes.size(), "smp: shrink: the first rank's address has ",
                text.size(), " bytes; at most ", bytes.size() - 1, " are supported");
    std::copy(text.begin(), text.end(), bytes.begin());
    survivors_.world
        ->broadcast(bytes.data(), int64_t(bytes.size()), DType::kU8, 0, "pytorch shrink")
        ->wait();
    return bytes.data();
  }

 private:
  comm::Survivors survivors_;
};

Left shrink(const c10::intrusive_ptr<c10d::Backend>& backend, int64_t limit_ms) {
  auto* const ours = dynamic_cast<SmpBackend*>(backend.get());
  TORCH_CHECK(ours != nullptr, "smp: shrink: the backend of the default process group is not smp");
  return Left(ours->shrink(std::chrono::milliseconds(limit_ms)));
}

// torch's Python asks those backends alone that it brings.
c10d::ErrorType get_error(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return backend->getError();
}

void leave(const c10::intrusive_ptr<c10d::Backend>& backend) {
  if (auto* ours = dynamic_cast<SmpBackend*>(backend.get())) ours->leave();
}

}  // namespace
}  // namespace smp::pytorch

using smp::pytorch::Left;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const py::call_guard<py::gil_scoped_release> released;
  module.def("create", &smp::pytorch::create, py::arg("group"), released);
  py::class_<Left>(module, "Left")
      .def_property_readonly("rank", &Left::rank)
      .def_property_readonly("former", &Left::former)
      .def("from_first", &Left::from_first, py::arg("text"), released);
  module.def("shrink", &smp::pytorch::shrink, py::arg("backend"), py::arg("limit_ms"), released);
  module.def("own_address",
             [] { return smp::pytorch::own_address(smp::pytorch::RendezvousEnvironment::read()); });
  module.def(
      "last_calls", [](size_t most) { return smp::pytorch::call_logs().text(most); },
      py::arg("most"), released);
  module.def("print_calls_on", &smp::pytorch::print_calls_on, py::arg("signal"), released);
  module.def("get_error", &smp::pytorch::get_error, py::arg("backend"), released);
  module.def("leave", &smp::pytorch::leave, py::arg("backend"), released);
}
