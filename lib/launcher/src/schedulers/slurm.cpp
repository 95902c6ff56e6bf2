#include "smp/launcher/schedulers/slurm.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "smp/launcher/environment/variables.h"
#include "smp/plan/base/errors.h"

namespace smp::schedulers {
namespace {

constexpr const char* kShowTopology = "scontrol show topology";

int take_number(std::string_view& text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 1 || value > most) return 0;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// "5,1(x3)" is 5, 1, 1, 1.
std::vector<int> parse_tasks(const std::string& whole) {
  const auto broken = [&] {
    return ConfigError(
        fmt::format("SLURM_TASKS_PER_NODE='{}': expected a list such as 5,1(x3)", whole));
  };
  std::vector<int> tasks;
  std::string_view text = whole;
  while (true) {
    const int count = take_number(text, hosts::kMostSlots);
    int times = 1;
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      times = take_number(text, hosts::kMostHosts);
      if (!text.starts_with(')')) throw broken();
      text.remove_prefix(1);
    }
    if (count == 0 || times == 0 || tasks.size() + static_cast<size_t>(times) > hosts::kMostHosts)
      throw broken();
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
    if (text.empty()) return tasks;
    if (!text.starts_with(',')) throw broken();
    text.remove_prefix(1);
  }
}

}  // namespace

SlurmAllocation slurm_allocation(const std::vector<std::string>& environment) {
  SlurmAllocation allocation{
      environment::value_in(environment, "SLURM_JOB_NODELIST").value_or(""),
      environment::value_in(environment, "SLURM_TASKS_PER_NODE").value_or("")};
  if (allocation.nodes.empty())
    throw ConfigError(
        "--hosts slurm: this is not an allocation of Slurm (SLURM_JOB_NODELIST is not set): run "
        "smp-launch under salloc or in a script of sbatch");
  return allocation;
}

std::vector<hosts::HostSpec> hosts_of_slurm(const SlurmAllocation& allocation) {
  std::vector<hosts::HostSpec> hosts;
  try {
    hosts = hosts::parse_hosts(allocation.nodes);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("SLURM_JOB_NODELIST: {}", error.what()));
  }
  if (allocation.tasks_per_node.empty()) return hosts;
  const std::vector<int> tasks = parse_tasks(allocation.tasks_per_node);
  if (tasks.size() != hosts.size())
    throw ConfigError(
        fmt::format("SLURM_TASKS_PER_NODE='{}' has {} nodes, but SLURM_JOB_NODELIST='{}' has {}",
                    allocation.tasks_per_node, tasks.size(), allocation.nodes, hosts.size()));
  if (std::all_of(tasks.begin(), tasks.end(), [](int count) { return count == 1; })) return hosts;
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = tasks[i];
  return hosts;
}

namespace {

// What it prints, errors too, and how it ended.
std::pair<std::string, int> output_of(const char* command) {
  FILE* const pipe = popen(fmt::format("{} 2>&1", command).c_str(), "re");
  if (pipe == nullptr)
    throw ConfigError(fmt::format("{}: cannot start this command: {}", command, strerror(errno)));
  std::string text;
  std::array<char, 4096> bytes{};
  while (const size_t count = fread(bytes.data(), 1, bytes.size(), pipe))
    text.append(bytes.data(), count);
  return {text, pclose(pipe)};
}

}  // namespace

std::string ask_slurm_for_switches() {
  auto [text, status] = output_of(kShowTopology);
  // Also with exit code 0, by the version.
  if (text.find("No topology information") != text.npos) return "";
  if (status != 0) {
    text = text.substr(0, text.find('\n'));
    throw ConfigError(fmt::format("{}: {}", kShowTopology,
                                  text.empty() ? "the command failed without output" : text));
  }
  return text;
}

std::pair<int, int> ask_slurm_for_ports() {
  return ports_of_srun(output_of("timeout 5 scontrol show config").first);
}

std::pair<int, int> ports_of_srun(const std::string& config) {
  const size_t line = config.find("SrunPortRange ");
  const size_t value = line == config.npos ? line : config.find("= ", line);
  if (value == config.npos) return {0, 0};
  std::string_view text = std::string_view(config).substr(value + 2);
  const int first = take_number(text, 65535);
  if (first == 0 || !text.starts_with('-')) return {0, 0};
  text.remove_prefix(1);
  const int last = take_number(text, 65535);
  return last < first ? std::pair(0, 0) : std::pair(first, last);
}

std::set<std::string> nodes_failed_by(const std::string& line) {
  constexpr std::string_view kError = "srun: error: ";
  std::set<std::string> nodes;
  const auto take = [&](size_t at, const char* ends) {
    const size_t end = std::min(line.find_first_of(ends, at), line.size());
    try {
      for (const hosts::HostSpec& host :
           hosts::parse_hosts(std::string_view(line).substr(at, end - at)))
        nodes.insert(host.name);
    } catch (const ConfigError&) {
      return;  // no list of nodes
    }
  };
  const size_t error = line.find(kError);
  if (error == line.npos) return nodes;
  const size_t begin = error + kError.size();
  if (const size_t end = line.find_first_of(": ", begin); end != line.npos && line[end] == ':')
    take(begin, ":");
  for (const std::string_view on : {" on node ", " on nodes ", " failure on "}) {
    if (const size_t at = line.find(on, begin - 1); at != line.npos) take(at + on.size(), ": ");
  }
  return nodes;
}

}  // namespace smp::schedulers
