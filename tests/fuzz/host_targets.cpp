#include "host_targets.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "fuzz/target.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/run/run_status.h"
#include "smp/launcher/schedulers/batch_hosts.h"
#include "smp/plan/base/errors.h"

namespace smp::fuzz {
namespace {

std::string entry_of(const hosts::HostSpec& host) {
  const bool v6 = host.name.find(':') != std::string::npos;
  std::string text = fmt::format("{}{}{}{}{}", host.user, host.user.empty() ? "" : "@",
                                 v6 ? "[" : "", host.name, v6 ? "]" : "");
  if (host.port != 0) text += fmt::format(":{}", host.port);
  if (host.slots != 0) text += fmt::format(":{}", host.slots);
  for (size_t i = 0; i < host.gpus.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "@gpu=" : ",", host.gpus[i]);
  return text;
}

// What was read is written a host a line, and reads back as the same.
void require_back(const std::vector<hosts::HostSpec>& hosts) {
  if (hosts.empty()) throw PropertyBroken{"no host and no error"};
  std::string written;
  for (const hosts::HostSpec& host : hosts) written += fmt::format("{}\n", entry_of(host));
  std::vector<hosts::HostSpec> back;
  try {
    back = hosts::parse_host_file("written", written);
  } catch (const std::exception& error) {
    throw PropertyBroken{std::string("what was written is not read back: ") + error.what()};
  }
  if (back.size() != hosts.size()) throw PropertyBroken{"another number of hosts"};
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (entry_of(back[i]) != entry_of(hosts[i])) throw PropertyBroken{"a host changed"};
  }
}

}  // namespace

// What is read can be told in words, whatever it is.
void read_status(const std::string& text) {
  const run::RunStatus status = run::parse_status("status.json", text);
  for (const run::Watcher watcher :
       {run::Watcher::kRuns, run::Watcher::kSilent, run::Watcher::kGone})
    if (run::status_text(status, watcher, std::chrono::system_clock::now()).empty())
      throw PropertyBroken{"a status without words"};
  run::status_line(status, 80);
  run::prometheus_text(status);
}

void read_hosts(const std::string& text) { require_back(hosts::parse_hosts(text)); }

void read_host_file(const std::string& text) {
  for (const auto& read : {schedulers::parse_slot_lines, schedulers::parse_slot_pairs}) {
    try {
      require_back(read("slots", text));
    } catch (const ConfigError&) {
    }
  }
  require_back(hosts::parse_host_file("hosts", text));
}

}  // namespace smp::fuzz
