#pragma once

// The order in which the hosts of a group send to each other; a pure function, tested for a
// thousand hosts. In step i = 1, 2, ..., hosts - 1 of a mesh host h sends to send_to(h, i) and
// takes from take_from(h, i). Every pair meets once in each direction, and in a step every host has
// one sender and one receiver, so no host is overloaded.
namespace smp::net {

inline int send_to(int host, int step, int hosts) { return (host + step) % hosts; }
inline int take_from(int host, int step, int hosts) { return (host - step + hosts) % hosts; }

}  // namespace smp::net
