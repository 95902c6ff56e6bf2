#include <stdexcept>

#include "net/ofi_transport.h"

// For builds without the headers of libfabric.
namespace smp::net {

OpenedTransport open_ofi_transport(const std::string&, const std::string&,
                                   std::optional<FabricProtocol>, int, bool) {
  throw std::runtime_error(
      "a job on several hosts needs libfabric, but this smp was built without it: install "
      "libfabric-dev and build again");
}

}  // namespace smp::net
