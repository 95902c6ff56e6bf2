#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "smp/comm/communicator.h"

namespace smp {

struct SharedMemoryOptions {
  int rank = 0;
  int size = 1;
  std::string job_id;   // public name of the job, at most 64 characters
  std::string job_key;  // its secret; the ranks prove to each other that they know it
  std::chrono::milliseconds timeout{300000};  // of coming together, and of every collective
  std::optional<std::chrono::milliseconds> meeting_timeout;  // another one of coming together
  int threads = 0;  // that make this rank's long calls; 0 = one, until it lends its CPUs
};

// The communicator of all ranks of a job whose processes run on this host, as one user. They meet
// at abstract Unix sockets named after the job, pass each other one memfd and watch over each
// other: a process that ends without destroying its communicators counts as dead. Nothing is left
// on the host however a process ends. Threads other than the caller's are started; a process that
// is forked afterwards may only leave alone or destroy what this one holds of the job.
//
// Throws CommError when the ranks cannot come together, and std::system_error without memory.
std::unique_ptr<Communicator> connect_shared_memory(const SharedMemoryOptions& options);

}  // namespace smp
