#include "smp/runtime/last_words.h"

#include <cstdio>

#include "smp/comm/communicator.h"
#include "smp/plan/errors.h"
#include "smp/plan/json.h"
#include "smp/runtime/atomic_file.h"
#include "smp/runtime/memory_ledger.h"

namespace smp {
namespace {

const char* kind_of(CommError::Kind kind) {
  switch (kind) {
    case CommError::Kind::kPeerLost: return "peer_lost";
    case CommError::Kind::kTimeout: return "timeout";
    case CommError::Kind::kMismatch: return "mismatch";
    case CommError::Kind::kAborted: return "aborted";
  }
  return "own";
}

}  // namespace

void describe(const std::exception& error, LastWords& words) {
  words.kind = "own";
  words.culprit = words.rank;
  words.message = error.what();
  if (const auto* comm = dynamic_cast<const CommError*>(&error)) {
    words.kind = kind_of(comm->kind);
    if (comm->culprit >= 0) words.culprit = comm->culprit;
    if (comm->kind == CommError::Kind::kTimeout) words.exit_code = ExitCode::kTimeout;
  } else if (const auto* memory = dynamic_cast<const OutOfMemory*>(&error)) {
    words.kind = "out_of_memory";
    words.phase = memory->phase;
  } else if (dynamic_cast<const ConfigError*>(&error) != nullptr) {
    words.exit_code = ExitCode::kBadConfig;
  }
}

std::string to_json(const LastWords& words) {
  const OrderedJson json = {{"rank", words.rank},
                            {"kind", words.kind},
                            {"culprit", words.culprit},
                            {"phase", words.phase},
                            {"message", words.message}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_last_words(const std::string& path, const LastWords& words) {
  if (path.empty()) return;
  try {
    write_file_atomically(path, to_json(words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: no error file: %s\n", words.rank, error.what());
  }
}

}  // namespace smp
