#include "waiting/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>

namespace smp::waiting {

Doorbell Doorbell::make() {
  Doorbell bell(system::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!bell) throw std::system_error(errno, std::generic_category(), "eventfd");
  return bell;
}

void Doorbell::ring() const {
  const uint64_t one = 1;
  while (::write(descriptor_.number(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

bool Doorbell::sleep(int other, std::chrono::microseconds limit) const {
  pollfd events[2] = {{descriptor_.number(), POLLIN, 0}, {other, POLLIN, 0}};
  timespec relative{};
  relative.tv_sec = limit.count() / 1000000;
  relative.tv_nsec = limit.count() % 1000000 * 1000;
  return ppoll(events, 2, &relative, nullptr) > 0 && events[0].revents != 0;
}

void Doorbell::answer() const {
  uint64_t rings;
  while (::read(descriptor_.number(), &rings, sizeof(rings)) < 0 && errno == EINTR) {
  }
}

}  // namespace smp::waiting
