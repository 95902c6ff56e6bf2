#include "smp/comm/communicator.h"

namespace smp {

std::string_view name_of(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "max"; }

std::unique_ptr<PeerWindow> Communicator::open_window(const void*, int64_t, DType,
                                                      std::string_view) {
  return nullptr;
}

}  // namespace smp
