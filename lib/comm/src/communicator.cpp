#include "smp/comm/communicator.h"

#include <stdexcept>

#include "smp/plan/base/check.h"

namespace smp::comm {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kProduct: return "product";
    case ReduceOp::kAverage: return "average";
  }
  check_failed(__FILE__, __LINE__, "unknown reduction");
}

std::unique_ptr<PeerWindow> Communicator::open_window(const void*, int64_t, DType,
                                                      std::string_view) {
  return nullptr;
}

Survivors Communicator::shrink(std::chrono::milliseconds) {
  throw std::logic_error("shrink needs ranks that are processes: these ranks are threads");
}

}  // namespace smp::comm
