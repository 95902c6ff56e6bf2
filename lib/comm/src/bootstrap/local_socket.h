#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "waiting/descriptor.h"

// Unix sockets with abstract names: nothing in the file system, gone with their process.
namespace smp::bootstrap {

using Deadline = std::chrono::steady_clock::time_point;

// Fails with std::system_error; EADDRINUSE when a live process has the name.
waiting::Descriptor listen_at(const std::string& name);
// An empty descriptor when nobody listens there, or, as `is_full` tells, so many wait there already
// that it takes no more for now.
waiting::Descriptor try_connect(const std::string& name, bool* is_full = nullptr);
// An empty one when whoever came has gone; std::system_error when this process may open no more.
waiting::Descriptor accept_one(const waiting::Descriptor& listener);

// False once the deadline has passed.
bool wait_readable(const waiting::Descriptor& socket, Deadline deadline);
// Whether the other end has gone.
bool closed_by_peer(const waiting::Descriptor& socket);

// Whole messages of `bytes` bytes, with a descriptor on the side. False when the other end went
// away or the deadline passed; std::runtime_error when this process may have no more descriptors.
bool send_all(const waiting::Descriptor& socket, const void* data, size_t bytes, int side_fd = -1);
bool receive_all(const waiting::Descriptor& socket, void* data, size_t bytes, Deadline deadline,
                 waiting::Descriptor* side = nullptr);

std::optional<unsigned> user_of_peer(const waiting::Descriptor& socket);
// Its process id; none where a container hides it.
std::optional<int> pid_of_peer(const waiting::Descriptor& socket);
// Readable when the process that made the other end of the connection has ended, whoever else holds
// its sockets. None where the kernel or a container does not tell; std::system_error when this
// process may open no more.
waiting::Descriptor process_of_peer(const waiting::Descriptor& socket);

}  // namespace smp::bootstrap
