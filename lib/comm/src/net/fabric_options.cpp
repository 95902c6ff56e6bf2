#include "smp/comm/net/fabric_options.h"

namespace smp::net {

std::string_view name_of(FabricProtocol protocol) {
  return protocol == FabricProtocol::kWrite ? "write" : "tagged";
}

}  // namespace smp::net
