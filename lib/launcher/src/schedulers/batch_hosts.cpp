#include "smp/launcher/schedulers/batch_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "smp/launcher/environment/variables.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::schedulers {
namespace {

// Hosts as they come, a name that comes again adds to its slots.
class SlotCount {
 public:
  explicit SlotCount(std::string name) : name_(std::move(name)) {}

  void add(const std::string& host, int slots) {
    const auto is_name = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':';
    };
    if (host.front() == '-' || !std::all_of(host.begin(), host.end(), is_name))
      throw ConfigError(fmt::format("{}: '{}' is not a host name", name_, host));
    const auto [found, fresh] = places_.try_emplace(host, hosts_.size());
    if (fresh) {
      if (hosts_.size() == hosts::kMostHosts)
        throw ConfigError(fmt::format("{}: more than {} hosts", name_, hosts::kMostHosts));
      hosts_.push_back({host, "", 0, 0, {}});
    }
    int& sum = hosts_[found->second].slots;
    sum += slots;
    if (sum > hosts::kMostSlots)
      throw ConfigError(
          fmt::format("{}: host '{}' has more than {} slots", name_, host, hosts::kMostSlots));
  }

  std::vector<hosts::HostSpec> take() {
    if (hosts_.empty()) throw ConfigError(fmt::format("{}: names no host", name_));
    return std::move(hosts_);
  }

 private:
  std::string name_;
  std::vector<hosts::HostSpec> hosts_;
  std::unordered_map<std::string, size_t> places_;
};

std::optional<int> slots_in(const std::string& text) {
  int slots = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, slots);
  if (error != std::errc{} || end != last || slots < 1 || slots > hosts::kMostSlots)
    return std::nullopt;
  return slots;
}

std::vector<hosts::HostSpec> read_slot_lines(const char* variable, const std::string& path) {
  return parse_slot_lines(fmt::format("{}='{}'", variable, path),
                          files::read_text_file(path, fmt::format("file of {}", variable)));
}

// "a 4 b 4", for people.
std::string text_of_slots(const std::vector<hosts::HostSpec>& hosts) {
  std::string text;
  for (const hosts::HostSpec& host : hosts)
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", host.name, host.slots);
  return text;
}

std::vector<hosts::HostSpec> without_single_slots(std::vector<hosts::HostSpec> hosts) {
  if (std::all_of(hosts.begin(), hosts.end(),
                  [](const hosts::HostSpec& h) { return h.slots == 1; })) {
    for (hosts::HostSpec& host : hosts) host.slots = 0;
  }
  return hosts;
}

}  // namespace

std::vector<hosts::HostSpec> parse_slot_lines(const std::string& name, std::string_view text) {
  SlotCount count(name);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos) continue;
    count.add(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first), 1);
  }
  return count.take();
}

std::vector<hosts::HostSpec> parse_slot_pairs(const std::string& name, std::string_view text) {
  SlotCount count(name);
  std::istringstream words{std::string(text)};
  for (std::string host, slots; words >> host;) {
    const auto number = words >> slots ? slots_in(slots) : std::nullopt;
    if (!number)
      throw ConfigError(fmt::format(
          "{}='{}': expected a list such as 'a 4 b 4': host '{}' has no number of slots", name,
          text, host));
    count.add(host, *number);
  }
  return count.take();
}

std::vector<hosts::HostSpec> hosts_of_lsf(const std::vector<std::string>& environment) {
  const auto pairs = environment::value_in(environment, "LSB_MCPU_HOSTS");
  const auto file = environment::value_in(environment, "LSB_DJOB_HOSTFILE");
  if (!pairs && !file)
    throw ConfigError(
        "--hosts lsf: this is not a job of LSF (neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE is "
        "set): run smp-launch in a script of bsub");
  std::vector<hosts::HostSpec> hosts = pairs ? parse_slot_pairs("LSB_MCPU_HOSTS", *pairs)
                                             : read_slot_lines("LSB_DJOB_HOSTFILE", *file);
  if (pairs && file) {
    const std::string listed = text_of_slots(read_slot_lines("LSB_DJOB_HOSTFILE", *file));
    if (listed != text_of_slots(hosts))
      throw ConfigError(
          fmt::format("LSB_MCPU_HOSTS='{}', but LSB_DJOB_HOSTFILE='{}' has '{}': unset the "
                      "variable that is not of this job",
                      *pairs, *file, listed));
  }
  return without_single_slots(std::move(hosts));
}

std::vector<hosts::HostSpec> hosts_of_pbs(const std::vector<std::string>& environment) {
  const auto file = environment::value_in(environment, "PBS_NODEFILE");
  if (!file)
    throw ConfigError(
        "--hosts pbs: this is not a job of PBS (PBS_NODEFILE is not set): run smp-launch in a "
        "script of qsub");
  std::vector<hosts::HostSpec> hosts = read_slot_lines("PBS_NODEFILE", *file);
  const auto all = environment::value_in(environment, "PBS_NP");
  if (all && *all != std::to_string(hosts::slots_of(hosts)))
    throw ConfigError(fmt::format(
        "PBS_NP={}, but PBS_NODEFILE='{}' has {} slots: unset the variable that is not of this job",
        *all, *file, hosts::slots_of(hosts)));
  return without_single_slots(std::move(hosts));
}

}  // namespace smp::schedulers
