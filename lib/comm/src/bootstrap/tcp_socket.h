#pragma once

#include <string>

#include "bootstrap/local_socket.h"

struct sockaddr;

// TCP sockets by which the ranks of several hosts meet.
namespace smp::bootstrap {

// Throws std::system_error or std::runtime_error that names the address.
waiting::Descriptor listen_tcp(const std::string& address, int port);
// An empty descriptor when nobody listens there, or the deadline has passed.
// `refused`: whether nobody does, as the host itself says.
waiting::Descriptor try_connect_tcp(const std::string& address, int port, Deadline deadline,
                                    bool* refused = nullptr);
// For a connection that was accepted or made: whole messages, small ones at once.
void prepare(const waiting::Descriptor& socket, Deadline deadline);

std::string text_of_address(const sockaddr* address);  // of IPv4 or IPv6, without the port
std::string local_address_of(const waiting::Descriptor& socket);  // numeric, without the port
int local_port_of(const waiting::Descriptor& socket);
std::string remote_address_of(const waiting::Descriptor& socket);  // "?" once it has gone

}  // namespace smp::bootstrap
