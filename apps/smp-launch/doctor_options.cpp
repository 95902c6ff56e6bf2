#include "doctor_options.h"

#include <fmt/format.h>

#include "command_line.h"
#include "smp/launcher/launch/doctor.h"
#include "smp/launcher/request/usage_error.h"

namespace smp {
namespace {

constexpr const char* kDoctorHelp =
    "Usage: smp-launch doctor [--json]\n\n"
    "Prints what this host has and what it lacks for running jobs, and how to fix each problem.\n"
    "Exit code: 0, or 1 if something that every job needs is missing.\n";

}  // namespace

launch::Report doctor(const std::vector<std::string>& words) {
  bool json = false;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") throw Information{kDoctorHelp};
    if (word != "--json")
      throw request::UsageError(
          fmt::format("doctor: unknown argument '{}': the only option is --json", word));
    json = true;
  }
  return launch::doctor(json);
}

}  // namespace smp
