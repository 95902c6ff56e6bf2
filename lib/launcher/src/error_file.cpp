#include "smp/launcher/error_file.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace smp {
namespace {

std::optional<RankErrorKind> kind_named(const std::string& name) {
  if (name == "own") return RankErrorKind::kOwn;
  if (name == "peer_lost") return RankErrorKind::kPeerLost;
  if (name == "timeout") return RankErrorKind::kTimeout;
  if (name == "mismatch") return RankErrorKind::kMismatch;
  if (name == "aborted") return RankErrorKind::kAborted;
  if (name == "out_of_memory") return RankErrorKind::kOutOfMemory;
  return std::nullopt;
}

}  // namespace

std::optional<RankError> read_error_file(const std::string& path, int rank, int world_size) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    const auto kind = kind_named(json.at("kind").get<std::string>());
    if (!kind) return std::nullopt;
    RankError error;
    error.rank = rank;
    error.kind = *kind;
    error.culprit = json.value("culprit", rank);
    if (error.culprit < 0 || error.culprit >= world_size) error.culprit = rank;
    error.phase = json.value("phase", "");
    error.message = json.value("message", "");
    return error;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace smp
