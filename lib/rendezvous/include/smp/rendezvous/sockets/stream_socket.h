#pragma once

#include <chrono>
#include <cstddef>

#include "smp/plan/system/file_descriptor.h"

// Stream sockets, Unix or TCP.
namespace smp::sockets {

using Deadline = std::chrono::steady_clock::time_point;

// Returns an empty descriptor if no connection waits. If this process may open no more files, sets
// `is_full`, or without it throws std::system_error.
system::FileDescriptor accept_one(const system::FileDescriptor& listener, bool* is_full = nullptr);

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

}  // namespace smp::sockets
