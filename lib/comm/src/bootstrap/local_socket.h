#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "smp/plan/system/file_descriptor.h"

// Unix sockets with abstract names: nothing in the file system, gone with their process.
namespace smp::bootstrap {

using Deadline = std::chrono::steady_clock::time_point;

// Throws std::system_error; EADDRINUSE if a live process has the name.
system::FileDescriptor listen_at(const std::string& name);
// An empty descriptor if nobody listens there, or if too many connections wait there for now
// (`is_full`).
system::FileDescriptor try_connect(const std::string& name, bool* is_full = nullptr);
// An empty descriptor if the peer has gone. Throws std::system_error if this process may open no
// more files.
system::FileDescriptor accept_one(const system::FileDescriptor& listener);

// False once the deadline has passed.
bool wait_readable(const system::FileDescriptor& socket, Deadline deadline);
// Whether the other end is closed.
bool closed_by_peer(const system::FileDescriptor& socket);

// Send and receive whole messages of `bytes` bytes, optionally with a descriptor (SCM_RIGHTS).
// False if the other end closed or the deadline passed. Throw std::runtime_error if this process
// may have no more descriptors.
bool send_all(const system::FileDescriptor& socket, const void* data, size_t bytes,
              int side_fd = -1);
bool receive_all(const system::FileDescriptor& socket, void* data, size_t bytes, Deadline deadline,
                 system::FileDescriptor* side = nullptr);

std::optional<unsigned> user_of_peer(const system::FileDescriptor& socket);
// The peer's process id; none where a container hides it.
std::optional<int> pid_of_peer(const system::FileDescriptor& socket);
// A pidfd of the process that made the other end of the connection: readable when it has ended,
// whoever else holds its sockets. Empty where the kernel or a container does not tell. Throws
// std::system_error if this process may open no more files.
system::FileDescriptor process_of_peer(const system::FileDescriptor& socket);

}  // namespace smp::bootstrap
