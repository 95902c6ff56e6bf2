#include "smp/launcher/process/error_file.h"

#include "smp/launcher/process/plain_file.h"
#include "smp/plan/text/json.h"

namespace smp::process {
namespace {

constexpr size_t kMostBytes = 1 << 20;

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

std::string read_error_file(const std::string& path) { return read_plain_file(path, kMostBytes); }

std::optional<RankError> parse_last_words(std::string_view text, int rank, int world_size) {
  if (text.empty()) return std::nullopt;
  const auto json = text::Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.contains("message") && json.at("message").is_object())
      return RankError{rank, RankErrorKind::kOwn, rank, "",
                       json.at("message").value("message", "")};
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
  } catch (const text::Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace smp::process
