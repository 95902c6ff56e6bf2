#include "smp/launcher/process_end.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

namespace smp {

std::string signal_name(int number) {
  if (const char* name = sigabbrev_np(number)) return std::string("SIG") + name;
  return fmt::format("SIGRTMIN+{}", number - SIGRTMIN);
}

std::string text_of(const ProcessEnd& end) {
  if (end.signal == 0) return fmt::format("ended with exit code {}", end.exit_code);
  const char* meaning = sigdescr_np(end.signal);
  return fmt::format("was killed by {}{}{}", signal_name(end.signal),
                     meaning == nullptr ? "" : fmt::format(" ({})", meaning),
                     end.dumped_core     ? ", core dumped"
                     : end.out_of_memory ? " by the kernel: out of memory"
                                         : "");
}

}  // namespace smp
