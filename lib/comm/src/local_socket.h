#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "descriptor.h"

// Unix sockets with abstract names: nothing in the file system, gone with their process.
namespace smp::shm {

using Deadline = std::chrono::steady_clock::time_point;

// Fails with std::system_error; EADDRINUSE when a live process has the name.
Descriptor listen_at(const std::string& name);
// An empty descriptor when nobody listens there.
Descriptor try_connect(const std::string& name);
Descriptor accept_one(const Descriptor& listener);

// False once the deadline has passed.
bool wait_readable(const Descriptor& socket, Deadline deadline);
// Whether the other end has gone.
bool closed_by_peer(const Descriptor& socket);

// Whole messages of `bytes` bytes, with a descriptor on the side. False when the other end went
// away or the deadline passed.
bool send_all(const Descriptor& socket, const void* data, size_t bytes, int side_fd = -1);
bool receive_all(const Descriptor& socket, void* data, size_t bytes, Deadline deadline,
                 Descriptor* side = nullptr);

std::optional<unsigned> user_of_peer(const Descriptor& socket);

}  // namespace smp::shm
