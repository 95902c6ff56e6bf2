#include "smp/comm/net/exchange_algorithm.h"

#include "net/wire_message.h"
#include "smp/plan/base/check.h"

namespace smp::net {

std::string_view name_of(Exchange exchange) {
  switch (exchange) {
    case Exchange::kMesh: return "mesh";
    case Exchange::kRing: return "ring";
    case Exchange::kDoubling: return "doubling";
  }
  check_failed(__FILE__, __LINE__, "unknown exchange");
}

int64_t message_bytes(int64_t all, bool takes_any_memory) {
  if (all <= mesh::kMessageBytes || !takes_any_memory) return mesh::kMessageBytes;
  return all > kMostPieceBytes ? kPieceBytes : kMostPieceBytes;
}

}  // namespace smp::net
