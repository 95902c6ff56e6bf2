#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "smp/comm/communicator.h"

namespace smp::jobs {

struct SharedMemoryOptions {
  int rank = 0;
  int size = 1;
  std::string job_id;   // public name of the job, at most 64 characters
  std::string job_key;  // its secret; the ranks prove to each other that they know it
  std::chrono::milliseconds timeout{300000};  // of the rendezvous, and of each call
  std::optional<std::chrono::milliseconds> rendezvous_timeout;  // of the rendezvous, if different
  int threads = 0;  // of this rank in long calls; 0: one, and more after lend_cpus()
};

// Connects all ranks of a job whose processes run on this host as one user, and returns their
// communicator. The ranks rendezvous at abstract Unix sockets. The job's key is part of the
// sockets' names, so a process with another key finds no rank. The ranks share one memfd and watch
// each other: a process that ends without destroying its communicators counts as dead. Nothing
// stays on the host, however a process ends. It starts threads. A forked process may use none of
// the job's objects; it may only ignore or destroy them.
//
// Throws CommError if the rendezvous fails, and std::system_error without memory.
std::unique_ptr<comm::Communicator> connect_shared_memory(const SharedMemoryOptions& options);

}  // namespace smp::jobs
