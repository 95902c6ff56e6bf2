#include "smp/comm/communicator.h"

namespace smp {

std::string_view name_of(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "max"; }

}  // namespace smp
