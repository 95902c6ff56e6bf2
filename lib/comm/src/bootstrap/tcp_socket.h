#pragma once

#include <string>

#include "bootstrap/local_socket.h"

struct sockaddr;

// TCP sockets for the rendezvous of several hosts.
namespace smp::bootstrap {

// Throws std::system_error or std::runtime_error that names the address.
system::FileDescriptor listen_tcp(const std::string& address, int port);
// An empty descriptor if nobody listens there, or the deadline has passed. `refused`: whether the
// host itself has refused the connection.
system::FileDescriptor try_connect_tcp(const std::string& address, int port, Deadline deadline,
                                       bool* refused = nullptr);
// Configures a connection that was accepted or made: time-outs, and no delay of small messages.
void prepare(const system::FileDescriptor& socket, Deadline deadline);

std::string text_of_address(const sockaddr* address);  // of IPv4 or IPv6, without the port
std::string local_address_of(const system::FileDescriptor& socket);  // numeric, without the port
int local_port_of(const system::FileDescriptor& socket);
std::string remote_address_of(const system::FileDescriptor& socket);  // "?" once it has gone

}  // namespace smp::bootstrap
