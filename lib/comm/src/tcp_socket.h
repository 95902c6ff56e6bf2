#pragma once

#include <string>

#include "local_socket.h"

// TCP sockets by which the ranks of several hosts meet.
namespace smp::shm {

// Throws std::system_error or std::runtime_error that names the address.
Descriptor listen_tcp(const std::string& address, int port);
// An empty descriptor when nobody listens there, or the deadline has passed.
Descriptor try_connect_tcp(const std::string& address, int port, Deadline deadline);
// For a connection that was accepted or made: whole messages, small ones at once.
void prepare(const Descriptor& socket, Deadline deadline);

std::string local_address_of(const Descriptor& socket);  // numeric, without the port
// The address from which this host reaches that one; nothing is sent.
std::string local_address_towards(const std::string& address, int port);
// The address of this host in "10.0.0.0/16". Throws std::runtime_error that lists all others.
std::string address_in(const std::string& subnet);

}  // namespace smp::shm
