#include "smp/runtime/record/last_words.h"

#include <cstdio>

#include "smp/comm/communicator.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/text/json.h"
#include "smp/runtime/ledger/memory_ledger.h"

namespace smp::record {
namespace {

const char* kind_of(comm::CommError::Kind kind) {
  switch (kind) {
    case comm::CommError::Kind::kPeerLost: return "peer_lost";
    case comm::CommError::Kind::kTimeout: return "timeout";
    case comm::CommError::Kind::kMismatch: return "mismatch";
    case comm::CommError::Kind::kAborted: return "aborted";
  }
  return "own";
}

}  // namespace

void describe(const std::exception& error, LastWords& words) {
  words.kind = "own";
  words.culprit = words.rank;
  words.message = error.what();
  if (const auto* comm = dynamic_cast<const comm::CommError*>(&error)) {
    words.kind = kind_of(comm->kind);
    if (comm->culprit >= 0) words.culprit = comm->culprit;
    if (comm->kind == comm::CommError::Kind::kTimeout) words.exit_code = ExitCode::kTimeout;
  } else if (const auto* memory = dynamic_cast<const ledger::OutOfMemory*>(&error)) {
    words.kind = "out_of_memory";
    words.phase = memory->phase;
  } else if (dynamic_cast<const ConfigError*>(&error) != nullptr) {
    words.exit_code = ExitCode::kBadConfig;
  }
}

std::string to_json(const LastWords& words) {
  const text::OrderedJson json = {{"rank", words.rank},
                                  {"kind", words.kind},
                                  {"culprit", words.culprit},
                                  {"phase", words.phase},
                                  {"message", words.message}};
  return json.dump(-1, ' ', false, text::Json::error_handler_t::replace) + "\n";
}

void write_last_words(const std::string& path, const LastWords& words) {
  if (path.empty()) return;
  try {
    files::write_file_atomically(path, to_json(words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: no error file: %s\n", words.rank, error.what());
  }
}

}  // namespace smp::record
