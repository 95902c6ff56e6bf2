#pragma once

#include <optional>
#include <string>

#include "smp/plan/system/file_descriptor.h"

// Unix sockets with abstract names: nothing in the file system, gone with their process.
namespace smp::sockets {

// Throws std::system_error; EADDRINUSE if a live process has the name.
system::FileDescriptor listen_unix(const std::string& name);
// An empty descriptor if nobody listens there, or if too many connections wait there for now
// (`is_full`).
system::FileDescriptor try_connect_unix(const std::string& name, bool* is_full = nullptr);

std::optional<unsigned> user_of_peer(const system::FileDescriptor& socket);
// The peer's process id; none where a container hides it.
std::optional<int> pid_of_peer(const system::FileDescriptor& socket);
// A pidfd of the process that made the other end of the connection: readable when it has ended,
// whoever else holds its sockets. Empty where the kernel or a container does not tell. Throws
// std::system_error if this process may open no more files.
system::FileDescriptor process_of_peer(const system::FileDescriptor& socket);

}  // namespace smp::sockets
