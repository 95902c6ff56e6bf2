#include "smp/runtime/training/fault_injection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <stdexcept>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"

namespace smp::training {
namespace {

constexpr std::pair<std::string_view, InjectedFault::Kind> kKinds[] = {
    {"exit3", InjectedFault::Kind::kExit3}, {"exception", InjectedFault::Kind::kException},
    {"segv", InjectedFault::Kind::kSegv},   {"kill", InjectedFault::Kind::kKill},
    {"stop", InjectedFault::Kind::kStop},
};

[[noreturn]] void refuse(std::string_view text) {
  throw ConfigError(fmt::format(
      "{}='{}': expected rank=R,step=S,kind=exit3|exception|segv|kill|stop", env::kFault, text));
}

void raise_default(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

InjectedFault parse_fault(std::string_view text) {
  InjectedFault fault;
  int found = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) refuse(text);
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "rank" || key == "step") {
      int64_t& number = key == "rank" ? fault.rank : fault.step;
      const char* end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, number);
      if (error != std::errc() || stop != end) refuse(text);
      ++found;
    } else if (key == "kind") {
      for (const auto& [name, kind] : kKinds) {
        if (value != name) continue;
        fault.kind = kind;
        ++found;
      }
    }
  }
  if (found != 3) refuse(text);
  return fault;
}

void check_fault(const std::optional<InjectedFault>& fault, int64_t ranks, int64_t steps) {
  if (!fault) return;
  if (fault->rank >= 0 && fault->rank < ranks && fault->step >= 1 && fault->step <= steps) return;
  throw ConfigError(fmt::format(
      "{}: step {} of rank {} does not exist: this job has steps 1 to {} and ranks 0 to {}",
      env::kFault, fault->step, fault->rank, steps, ranks - 1));
}

void inject_fault_if_due(const std::optional<InjectedFault>& fault, int64_t rank, int64_t step) {
  if (!fault || fault->rank != rank || fault->step != step) return;
  switch (fault->kind) {
    case InjectedFault::Kind::kExit3: ::_exit(3);
    case InjectedFault::Kind::kException:
      throw std::runtime_error(fmt::format("injected exception on rank {} at step {}", rank, step));
    case InjectedFault::Kind::kSegv: raise_default(SIGSEGV); return;
    case InjectedFault::Kind::kKill: raise_default(SIGKILL); return;
    case InjectedFault::Kind::kStop:
      for (;;) ::pause();
  }
}

}  // namespace smp::training
