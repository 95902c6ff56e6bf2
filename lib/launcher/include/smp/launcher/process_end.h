#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smp {

struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // 0 = it ended by itself
  bool dumped_core = false;
  std::string last_words{};        // what stands in its error file
  bool out_of_memory = false;      // it was the kernel that killed it, because memory ran out
  int64_t memory_limit_bytes = 0;  // then: of its control group; 0: it has none
  // Of it and of its children that it has waited for: time on CPUs, and the most resident memory
  // of one of them.
  int64_t cpu_ms = 0, peak_memory_bytes = 0;
  // Of one that failed: errors of GPUs that its host's kernel has logged since its host began to
  // start processes, but for those of other ranks as far as that can be told. "GPU 3: Xid
  // (PCI:0000:3b:00): 79, ..."
  std::vector<std::string> gpu_errors{};
  int pid = 0;  // on its host; 0: not known

  bool failed() const { return exit_code != 0 || signal != 0; }
  // What a shell would report: the exit code, or 128 + signal.
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// "was killed by SIGSEGV (Segmentation fault)", "ended with exit code 3".
std::string text_of(const ProcessEnd& end);

// "SIGSEGV", "SIGRTMIN+3".
std::string signal_name(int number);

}  // namespace smp
