#pragma once

#include <string>

#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/sockets/stream_socket.h"

struct sockaddr;

// TCP sockets, over IPv4 and IPv6. `address`: a name, or a numeric address.
namespace smp::sockets {

// Listens at an address of this host; "::" stands for IPv4 too, port 0 for a free one. Throws
// std::runtime_error if the name has no address, std::system_error (EADDRNOTAVAIL: not of this
// host) if it cannot listen there. Both name the address.
system::FileDescriptor listen_tcp(const std::string& address, int port);
// Tries each address of the name in turn. Returns an empty descriptor, with the reason as an errno
// value in `*error`, if no connection is made before the deadline. Throws std::runtime_error if the
// name has no address, std::system_error if this process may open no more files.
system::FileDescriptor try_connect_tcp(const std::string& address, int port, Deadline deadline,
                                       int* error = nullptr);
// Configures a connection that was accepted or made: sends fail after the deadline, and small
// messages are not delayed.
void prepare(const system::FileDescriptor& socket, Deadline deadline);

std::string text_of_address(const sockaddr* address);  // of IPv4 or IPv6, without the port
std::string local_address_of(const system::FileDescriptor& socket);  // numeric, without the port
int local_port_of(const system::FileDescriptor& socket);
std::string remote_address_of(const system::FileDescriptor& socket);  // "?" once it has gone

// Returns the numeric address from which this host reaches `address`. Sends nothing, so any port
// will do. Throws std::runtime_error that names `address`.
std::string local_address_towards(const std::string& address, int port = 9);

}  // namespace smp::sockets
