#pragma once

#include <cstdint>
#include <optional>
#include <string>

// What was measured of this host, in the user's cache ($XDG_CACHE_HOME or ~/.cache, in smp/), so
// that it is measured once. Any thread.
namespace smp::system {

// What a measurement of this host depends on.
struct HostKey {
  std::string what;  // was measured: "host", "products"
  std::string cpu;   // "AMD EPYC"
  int64_t cpus = 0;
  std::string build;     // of the program that is measured
  std::string settings;  // environment variables that choose instruction sets
};
// Its cpus are those of this process.
HostKey this_host(const std::string& what, const std::string& build);

struct StoredMeasurement {
  std::string date;   // "2026-11-29", UTC
  std::string lines;  // of text
};

// Whether the user wants nothing measured: SMP_NO_MEASURE is set, and not 0.
bool refuses_measuring();

// "2026-11-29", UTC.
std::string today();

// The file in the user's cache that a measurement of `key` is stored in; "" where the user has
// none: neither XDG_CACHE_HOME nor HOME is an absolute path.
std::string cache_file(const HostKey& key);

// What the file holds; nothing if it is not there. `note`: why a file that is there is ignored.
std::optional<StoredMeasurement> read_stored(const std::string& path, const HostKey& key,
                                             std::string& note);

// Writes it whole or not at all, so that others may do the same at once. Throws
// std::runtime_error.
void store(const std::string& path, const HostKey& key, const StoredMeasurement& measurement);

}  // namespace smp::system
