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
  std::chrono::milliseconds timeout{300000};  // for the ranks to meet, and for each call
  std::optional<std::chrono::milliseconds> meeting_timeout;  // for the ranks to meet, if different
  int threads = 0;  // of this rank in long calls; 0: one, and more after lend_cpus()
};

// The communicator of all ranks of a job whose processes run on this host, as one user. They meet
// at abstract Unix sockets whose names are made of the job's key, so one with another key finds
// nobody, hand each other one memfd and watch over each other: a process that ends without
// destroying its communicators counts as dead. Nothing is left on the host, however a process ends.
// It starts threads; a process that is forked afterwards may only leave alone or destroy what this
// one holds of the job.
//
// Throws CommError if the ranks cannot meet, and std::system_error without memory.
std::unique_ptr<comm::Communicator> connect_shared_memory(const SharedMemoryOptions& options);

}  // namespace smp::jobs
