#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace smp {

// What a measurement of this host depends on.
struct HostKey {
  std::string cpu;  // "AMD EPYC"
  int64_t cpus = 0;
  std::string build;     // of this program
  std::string settings;  // environment variables that choose instruction sets
};
HostKey this_host();

struct StoredMeasurement {
  std::string date;   // "2026-11-29", UTC
  std::string lines;  // that smp-bench host printed
};

// The file in the user's cache that a measurement of `key` is stored in; "" where the user has
// none: neither XDG_CACHE_HOME nor HOME is an absolute path.
std::string cache_file(const HostKey& key);

// What the file holds; nothing if it is not there. `note`: why a file that is there is ignored.
std::optional<StoredMeasurement> read_stored(const std::string& path, const HostKey& key,
                                             std::string& note);

// Writes it whole or not at all, so that others may do the same at once. Throws
// std::runtime_error.
void store(const std::string& path, const HostKey& key, const StoredMeasurement& measurement);

}  // namespace smp
