#include "smp/plan/system/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace smp::system {

bool fill_standard_streams() {
  bool is_heard = true;
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) >= 0) continue;
    if (number == STDOUT_FILENO) is_heard = false;
    // The lowest number that is free is this one.
    (void)!open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
  return is_heard;
}

}  // namespace smp::system
