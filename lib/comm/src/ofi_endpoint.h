#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "libfabric.h"
#include "transport.h"

namespace smp::shm {

// An endpoint of what `info` describes, which it frees. `writes`: by RMA, which info has then;
// tagged messages otherwise. Throws std::runtime_error that says what libfabric refuses.
std::unique_ptr<Transport> open_ofi_endpoint(std::shared_ptr<LibFabric> library, fi_info* info,
                                             bool writes);

}  // namespace smp::shm
