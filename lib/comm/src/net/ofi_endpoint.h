#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "net/fabric_transport.h"
#include "net/libfabric.h"

namespace smp::net {

// Opens an endpoint as `info` describes, and frees `info`. `writes`: by RMA, which `info` must
// offer; otherwise by tagged messages. Throws std::runtime_error with libfabric's reason.
std::unique_ptr<FabricTransport> open_ofi_endpoint(std::shared_ptr<LibFabric> library,
                                                   fi_info* info, bool writes);

}  // namespace smp::net
