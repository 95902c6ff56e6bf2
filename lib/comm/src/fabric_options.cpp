#include "smp/comm/fabric_options.h"

namespace smp {

std::string_view name_of(FabricProtocol protocol) {
  return protocol == FabricProtocol::kWrite ? "write" : "tagged";
}

}  // namespace smp
