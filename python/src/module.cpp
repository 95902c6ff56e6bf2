#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "meeting.h"

// The Python module smp_torch._backend.
namespace smp::pytorch {
namespace {

void outside_python(const std::function<void()>& run) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return run();
  const py::gil_scoped_release released;
  run();
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& group) {
  return c10::make_intrusive<SmpBackend>(meet(group, Surroundings::read()), place_of(group),
                                         timeout_of(group), outside_python);
}

void leave(const c10::intrusive_ptr<c10d::Backend>& backend) {
  if (auto* ours = dynamic_cast<SmpBackend*>(backend.get())) ours->leave();
}

}  // namespace
}  // namespace smp::pytorch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const py::call_guard<py::gil_scoped_release> released;
  module.def("create", &smp::pytorch::create, py::arg("group"), released);
  module.def("leave", &smp::pytorch::leave, py::arg("backend"), released);
}
