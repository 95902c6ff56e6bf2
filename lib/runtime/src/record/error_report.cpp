#include "smp/runtime/record/error_report.h"

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

void describe(const std::exception& error, ErrorReport& report) {
  report.kind = "own";
  report.culprit = report.rank;
  report.message = error.what();
  if (const auto* comm = dynamic_cast<const comm::CommError*>(&error)) {
    report.kind = kind_of(comm->kind);
    if (comm->culprit >= 0) report.culprit = comm->culprit;
    if (comm->kind == comm::CommError::Kind::kTimeout) report.exit_code = ExitCode::kTimeout;
  } else if (const auto* memory = dynamic_cast<const ledger::OutOfMemory*>(&error)) {
    report.kind = "out_of_memory";
    report.phase = memory->phase;
  } else if (dynamic_cast<const ConfigError*>(&error) != nullptr) {
    report.exit_code = ExitCode::kBadConfig;
  }
}

std::string to_json(const ErrorReport& report) {
  const text::OrderedJson json = {{"rank", report.rank},
                                  {"kind", report.kind},
                                  {"culprit", report.culprit},
                                  {"phase", report.phase},
                                  {"message", report.message}};
  return json.dump(-1, ' ', false, text::Json::error_handler_t::replace) + "\n";
}

void write_error_report(const std::string& path, const ErrorReport& report) {
  if (path.empty()) return;
  try {
    files::write_file_atomically(path, to_json(report));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: the error file could not be written: %s\n", report.rank,
                 error.what());
  }
}

}  // namespace smp::record
