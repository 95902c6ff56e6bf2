#include "lost_peer.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace smp {
namespace {

// Parts of what they say, in no version alone.
constexpr std::array<std::string_view, 13> kWords = {
    "Connection closed by",                     // gloo: by peer; NCCL: by remote peer, by localRank
    "Connection reset by",                      // gloo, NCCL, Python
    "onnection was likely closed",              // torch's TCPStore
    "failed to recv, got 0 bytes",              // torch's TCPStore
    "Broken pipe",                              // gloo, Python
    "ncclRemoteError",                          // NCCL
    "remote process exited",                    // NCCL: ... or there was a network error
    "remote process exiting prematurely",       // torch, of NCCL
    "NCCL communicator was aborted",            // torch
    "collective operation timeout",             // torch's watchdog
    "Application timeout caused pair closure",  // gloo
    "operation to complete",                    // gloo: timed out waiting 1000ms for recv ...
    "lost its connection to rank",              // ours
};

}  // namespace

bool tells_of_lost_peer(const std::vector<std::string>& last_lines) {
  return std::any_of(last_lines.begin(), last_lines.end(), [](const std::string& line) {
    return std::any_of(kWords.begin(), kWords.end(),
                       [&](std::string_view words) { return line.find(words) != line.npos; });
  });
}

}  // namespace smp
