#include "supervision/peer_failure.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace smp::supervision {
namespace {

// Parts of the messages of several versions of these libraries.
constexpr std::array<std::string_view, 14> kWords = {
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
    "for recv operation to complete",           // gloo: timed out waiting 1000ms ...
    "for send operation to complete",           // gloo
    "lost its connection to rank",              // ours
};

constexpr int kFinalLines = 10;

bool has(const std::string& line, std::string_view words) { return line.find(words) != line.npos; }

// The range of lines that says why the program ended. Earlier lines may report a connection that
// was made again. Of several chained exceptions it is the first one.
std::pair<size_t, size_t> final_words(const std::vector<std::string>& lines) {
  std::optional<size_t> begin;
  size_t end = lines.size();
  bool follows = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (has(lines[i], "Traceback (most recent call last)")) {
      if (!follows) {
        begin = i;
        end = lines.size();
      }
      follows = false;
    } else if (has(lines[i], "above exception")) {  // During handling of ..., ... was the cause of
      follows = true;
      end = std::min(end, i);
    }
  }
  if (begin) return {*begin, end};
  size_t first = lines.size();
  for (int left = kFinalLines; first > 0 && left > 0; --first)
    if (!lines[first - 1].starts_with("frame #")) --left;  // torch's stacks of C++
  return {first, lines.size()};
}

}  // namespace

bool reports_peer_failure(const std::vector<std::string>& last_lines) {
  const auto [begin, end] = final_words(last_lines);
  return std::any_of(last_lines.begin() + static_cast<long>(begin),
                     last_lines.begin() + static_cast<long>(end), [](const std::string& line) {
                       return std::any_of(kWords.begin(), kWords.end(),
                                          [&](std::string_view words) { return has(line, words); });
                     });
}

}  // namespace smp::supervision
