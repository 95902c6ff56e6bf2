#pragma once

#include <map>
#include <string>

namespace smp::handshake {

// Counts the connections that were rejected, by origin.
class RejectedPeers {
 public:
  void reject(const std::string& origin) { ++by_origin_[origin]; }
  // "; 3 connections were rejected (2 from 10.0.0.9, 1 from 10.0.0.7)"; "" if there were none.
  std::string text() const;

 private:
  std::map<std::string, int> by_origin_;
};

}  // namespace smp::handshake
