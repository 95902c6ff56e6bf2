#include "smp/comm/waiting/creator_process.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

#include "smp/comm/communicator.h"

namespace smp::waiting {

void CreatorProcess::note_fork() { forks.fetch_add(1); }

CreatorProcess::CreatorProcess() : forks_(forks.load()) {
  static const int error = pthread_atfork(nullptr, nullptr, note_fork);
  if (error != 0)
    throw std::system_error(error, std::generic_category(),
                            "cannot install a fork handler (pthread_atfork)");
}

void CreatorProcess::refuse(int rank) {
  throw comm::CommError(
      comm::CommError::Kind::kAborted, -1,
      fmt::format(
          "this process was forked from rank {}: a child process cannot use the rank's groups",
          rank));
}

}  // namespace smp::waiting
