#include <stdexcept>

#include "net/ofi_transport.h"

// Where libfabric's headers are not installed.
namespace smp::net {

OpenedTransport open_ofi_transport(const std::string&, const std::string&,
                                   std::optional<FabricProtocol>, int, bool) {
  throw std::runtime_error(
      "this smp was built without libfabric, which a job on several hosts needs: install "
      "libfabric-dev and build again");
}

}  // namespace smp::net
