#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "net/libfabric.h"
#include "net/transport.h"

namespace smp::net {

// An endpoint of what `info` describes, which it frees. `writes`: by RMA, which info has then;
// tagged messages otherwise. Throws std::runtime_error that says what libfabric refuses.
std::unique_ptr<Transport> open_ofi_endpoint(std::shared_ptr<LibFabric> library, fi_info* info,
                                             bool writes);

}  // namespace smp::net
