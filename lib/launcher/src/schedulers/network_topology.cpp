#include "smp/launcher/schedulers/network_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/lower_case.h"

namespace smp::schedulers {
namespace {

// Switches of Slurm, before it is known what is above them.
struct SlurmSwitch {
  std::vector<std::string> nodes, switches;
  std::string above;
};

std::vector<std::string> names_in(const std::string& place, const std::string& list) {
  std::vector<std::string> names;
  if (list.empty() || list == "(null)") return names;
  try {
    for (hosts::HostSpec& host : hosts::parse_hosts(list)) names.push_back(std::move(host.name));
  } catch (const ConfigError&) {
    throw ConfigError(
        fmt::format("{}: '{}' is not a list of names like n[1-3,7],big", place, list));
  }
  return names;
}

// "SwitchName=s0 Level=0 Nodes=n[1-4]": words behind blanks; keys in any case.
std::map<std::string, std::string> words_of(const std::string& place, std::string_view line) {
  std::map<std::string, std::string> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) return words;
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(word.size());
    const size_t equals = word.find('=');
    if (equals == word.npos || equals == 0)
      throw ConfigError(fmt::format(
          "{}: unexpected '{}': expected a line such as SwitchName=s0 Nodes=n[1-4]", place, word));
    words[text::lower_case(word.substr(0, equals))] = word.substr(equals + 1);
  }
}

void read_slurm(const TopologyText& source, NetworkTopology& topology) {
  std::map<std::string, SlurmSwitch> switches;
  std::vector<std::string> names;  // in the file's order
  size_t number = 0;
  for (size_t begin = 0; begin < source.text.size();) {
    const size_t end = std::min(source.text.find('\n', begin), source.text.size());
    std::string_view line(source.text.data() + begin, end - begin);
    begin = end + 1;
    const std::string place = fmt::format("{}:{}", source.name, ++number);
    line = line.substr(0, line.find('#'));
    std::map<std::string, std::string> words = words_of(place, line);
    if (words.empty()) continue;
    const std::string name =
        words.contains("switchname") ? words["switchname"] : words["blockname"];
    if (name.empty())
      throw ConfigError(fmt::format(
          "{}: the line has no name of a switch: expected SwitchName= or BlockName=", place));
    const auto [at, is_first] = switches.try_emplace(name);
    if (!is_first)
      throw ConfigError(fmt::format("{}: switch '{}' is described twice", place, name));
    at->second.switches = names_in(place, words["switches"]);
    // Of a switch above others scontrol lists the nodes of those, too.
    if (at->second.switches.empty()) at->second.nodes = names_in(place, words["nodes"]);
    names.push_back(name);
  }
  for (const std::string& name : names) {
    for (const std::string& below : switches[name].switches) {
      const auto found = switches.find(below);
      if (found == switches.end())
        throw ConfigError(fmt::format("{}: switch '{}' is below '{}', but is not described",
                                      source.name, below, name));
      if (found->second.above.empty()) found->second.above = name;
    }
  }
  for (const std::string& name : names) {
    std::vector<std::string> path;
    for (std::string at = name; !at.empty(); at = switches[at].above) {
      path.insert(path.begin(), at);
      if (path.size() > switches.size())
        throw ConfigError(fmt::format("{}: switch '{}' is below itself", source.name, at));
    }
    for (const std::string& node : switches[name].nodes)
      topology.switches_of.try_emplace(node, path);
  }
}

std::string text_at(const text::Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

const text::Json& array_at(const std::string& name, const text::Json& json, const char* key) {
  static const text::Json none = text::Json::array();
  if (!json.is_object()) throw ConfigError(fmt::format("{}: not the JSON that EC2 prints", name));
  const auto found = json.find(key);
  if (found == json.end()) return none;
  if (!found->is_array()) throw ConfigError(fmt::format("{}: '{}' is not a list", name, key));
  return *found;
}

// What EC2 tells in answers of their own.
struct Ec2 {
  std::map<std::string, std::vector<std::string>> switches_of;             // by instance
  std::vector<std::pair<std::string, std::vector<std::string>>> names_of;  // of instances
};

void read_ec2(const TopologyText& source, Ec2& ec2) {
  const text::Json json = text::Json::parse(source.text, nullptr, false);
  if (!json.is_object() || (!json.contains("Instances") && !json.contains("Reservations")))
    throw ConfigError(
        fmt::format("{}: neither the JSON of aws ec2 describe-instance-topology nor that of "
                    "describe-instances",
                    source.name));
  for (const text::Json& instance : array_at(source.name, json, "Instances")) {
    const std::string id = instance.is_object() ? text_at(instance, "InstanceId") : "";
    if (id.empty())
      throw ConfigError(fmt::format("{}: an instance without InstanceId", source.name));
    std::vector<std::string> path;
    for (const text::Json& node : array_at(source.name, instance, "NetworkNodes")) {
      if (!node.is_string())
        throw ConfigError(
            fmt::format("{}: {}: a network node that is not a string", source.name, id));
      path.push_back(node.get<std::string>());
    }
    ec2.switches_of[id] = std::move(path);
  }
  for (const text::Json& reservation : array_at(source.name, json, "Reservations")) {
    for (const text::Json& instance : array_at(source.name, reservation, "Instances")) {
      if (!instance.is_object()) continue;
      std::vector<std::string> names;
      for (const char* key :
           {"PrivateDnsName", "PrivateIpAddress", "PublicDnsName", "PublicIpAddress"}) {
        if (std::string name = text_at(instance, key); !name.empty())
          names.push_back(std::move(name));
      }
      ec2.names_of.emplace_back(text_at(instance, "InstanceId"), std::move(names));
    }
  }
}

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

void add_ec2(const Ec2& ec2, NetworkTopology& topology) {
  for (const auto& [id, path] : ec2.switches_of) topology.switches_of.try_emplace(id, path);
  for (const auto& [id, names] : ec2.names_of) {
    const auto found = ec2.switches_of.find(id);
    if (found == ec2.switches_of.end()) continue;
    for (const std::string& name : names) {
      topology.switches_of.try_emplace(name, found->second);
      // "ip-10-0-0-1" of "ip-10-0-0-1.ec2.internal", but not 10 of 10.0.0.1
      if (const std::string label = first_label(name); label.find('-') != label.npos)
        topology.switches_of.try_emplace(label, found->second);
    }
  }
}

// Its switches, by its whole name or what stands before the first dot; null: not known.
const std::vector<std::string>* switches_of(const hosts::HostSpec& host,
                                            const NetworkTopology& topology) {
  auto found = topology.switches_of.find(host.name);
  if (found == topology.switches_of.end())
    found = topology.switches_of.find(first_label(host.name));
  return found == topology.switches_of.end() ? nullptr : &found->second;
}

int neighbours_at_one_switch(const std::vector<hosts::HostSpec>& hosts,
                             const NetworkTopology& topology) {
  int count = 0;
  for (size_t i = 1; i < hosts.size(); ++i) {
    const auto* one = switches_of(hosts[i - 1], topology);
    const auto* other = switches_of(hosts[i], topology);
    count += one != nullptr && other != nullptr && !one->empty() && *one == *other;
  }
  return count;
}

}  // namespace

NetworkTopology parse_network_topology(const std::vector<TopologyText>& texts) {
  NetworkTopology topology;
  Ec2 ec2;
  for (const TopologyText& source : texts) {
    const size_t begin = source.text.find_first_not_of(" \t\r\n");
    if (begin != std::string::npos && source.text[begin] == '{')
      read_ec2(source, ec2);
    else
      read_slurm(source, topology);
  }
  add_ec2(ec2, topology);
  return topology;
}

HostOrder order_by_switches(std::vector<hosts::HostSpec> hosts, const NetworkTopology& topology,
                            const std::string& source) {
  // Of each host, for each of its switches from the top: the first host below that one.
  std::vector<std::vector<size_t>> keys;
  std::map<std::string, size_t> first_below;  // by the names of the switches on the way
  size_t unknown = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::vector<size_t> key;
    std::string way;
    if (const auto* path = switches_of(hosts[i], topology)) {
      for (const std::string& name : *path) {
        way += name + '\n';
        key.push_back(first_below.try_emplace(way, i).first->second);
      }
    } else {
      ++unknown;
    }
    key.push_back(i);
    keys.push_back(std::move(key));
  }
  if (unknown == hosts.size())
    throw ConfigError(fmt::format("{}: the topology has none of the hosts, such as '{}'", source,
                                  hosts.empty() ? "" : hosts.front().name));
  std::vector<size_t> order(hosts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });

  HostOrder ordered;
  for (const size_t i : order) ordered.hosts.push_back(hosts[i]);
  const int after = neighbours_at_one_switch(ordered.hosts, topology);
  ordered.text = fmt::format(
      "hosts in the order of their switches, from {}: {} of {} neighbours share a switch ({} in "
      "the listed order)",
      source, after, hosts.size() - 1, neighbours_at_one_switch(hosts, topology));
  if (unknown > 0) ordered.text += fmt::format("; hosts with an unknown switch: {}", unknown);
  return ordered;
}

}  // namespace smp::schedulers
