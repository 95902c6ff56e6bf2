#include "smp/launcher/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_set>

#include "hosts/host_entry.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/suggest.h"

namespace smp::hosts {
namespace {

constexpr size_t kMostSuggested = 1000;  // names that are compared with a misspelt one

// DNS and ssh do not tell N1 from n1, nor the whole name n1.example.com from n1.example.com. with
// its dot.
std::string same_host(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string key(name);
  for (char& c : key) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return key;
}

// The hosts of a job as they come, none of them twice.
class Collector {
 public:
  void add(std::vector<HostSpec> hosts, size_t at) {
    if (hosts_.size() + hosts.size() > kMostHosts)
      throw HostSyntaxError{at, fmt::format("more than {} hosts", kMostHosts)};
    seen_.reserve(seen_.size() + hosts.size());
    for (const HostSpec& host : hosts) {
      std::string key = same_host(host.name);
      if (host.port != 0) key += fmt::format(":{}", host.port);
      if (!seen_.insert(std::move(key)).second)
        throw HostSyntaxError{at, fmt::format("host '{}' is named twice", host.name)};
    }
    std::move(hosts.begin(), hosts.end(), std::back_inserter(hosts_));
  }
  std::vector<HostSpec> take() { return std::move(hosts_); }

 private:
  std::vector<HostSpec> hosts_;
  std::unordered_set<std::string> seen_;
};

// Entries behind commas, up to the end of the text.
template <typename Read>
void read_list(HostCursor& cursor, Collector& collector, Read read) {
  do {
    const size_t at = cursor.at();
    collector.add(read(cursor), at);
    if (!cursor.done() && cursor.next() != ',')
      throw HostSyntaxError{cursor.at(), fmt::format("unexpected '{}'", cursor.word(","))};
  } while (cursor.take(','));
}

// One line of text behind an option.
template <typename Read>
std::vector<HostSpec> parse_option(const char* option, std::string_view text, Read read) {
  Collector collector;
  HostCursor cursor(text);
  try {
    read_list(cursor, collector, read);
  } catch (const HostSyntaxError& error) {
    text::Diagnostics diagnostics;
    const int source = diagnostics.add_source(option, std::string(text), false);
    diagnostics.error({source, 1, static_cast<int>(error.at) + 1}, error.message);
    diagnostics.raise_if_any();
  }
  return collector.take();
}

void skip_blanks(HostCursor& cursor) {
  while (cursor.take(' ') || cursor.take('\t') || cursor.take('\r')) {
  }
}

// The words behind a host in a line of a host file.
void read_words(HostCursor& cursor, HostSpec& said) {
  int most = 0;
  size_t most_at = 0;
  for (skip_blanks(cursor); !cursor.done(); skip_blanks(cursor)) {
    const size_t at = cursor.at();
    if (cursor.take("slots=")) {
      if (said.slots != 0) throw HostSyntaxError{at, "slots are given twice"};
      said.slots = cursor.number("slots", 1, kMostSlots);
    } else if (cursor.take("max_slots=") || cursor.take("max-slots=")) {
      most = cursor.number("max_slots", 1, kMostSlots);
      most_at = at;
    } else if (cursor.take("gpu=")) {
      said.gpus = cursor.gpu_list();
    } else {
      throw HostSyntaxError{
          at, fmt::format("unexpected '{}': expected slots=, max_slots= or gpu= after a host",
                          cursor.word(" \t\r"))};
    }
    if (!cursor.done() && cursor.next() != ' ' && cursor.next() != '\t' && cursor.next() != '\r')
      throw HostSyntaxError{cursor.at(), fmt::format("unexpected '{}'", cursor.word(" \t\r"))};
    check_gpus(said, at);
  }
  if (most != 0 && said.slots == 0) said.slots = most;
  check_gpus(said, most_at);
  if (most != 0 && said.slots > most)
    throw HostSyntaxError{most_at,
                          fmt::format("{} slots are more than max_slots={}", said.slots, most)};
}

void read_line(std::string_view line, Collector& collector) {
  HostCursor cursor(line);
  skip_blanks(cursor);
  if (cursor.done()) return;
  const size_t at = cursor.at();
  std::vector<HostSpec> hosts = read_host_entry(cursor);
  HostSpec said = hosts.front();
  if (!cursor.done() && cursor.next() != ' ' && cursor.next() != '\t' && cursor.next() != '\r')
    throw HostSyntaxError{cursor.at(), fmt::format("unexpected '{}'", cursor.word(" \t\r"))};
  read_words(cursor, said);
  for (HostSpec& host : hosts) {
    host.slots = said.slots;
    host.gpus = said.gpus;
  }
  collector.add(std::move(hosts), at);
}

std::string hosts_text(size_t count) {
  return fmt::format("{} host{}", count, count == 1 ? "" : "s");
}

// Of all hosts together; nothing where one of them says none.
std::optional<int64_t> said_slots(const std::vector<HostSpec>& hosts) {
  int64_t slots = 0;
  for (const HostSpec& host : hosts) {
    const int own = host.slots != 0 ? host.slots : static_cast<int>(host.gpus.size());
    if (own == 0) return std::nullopt;
    slots += own;
  }
  return slots;
}

}  // namespace

std::vector<HostSpec> parse_hosts(std::string_view text) {
  return parse_option("--hosts", text, read_host_entry);
}

std::vector<HostSpec> parse_host_file(const std::string& name, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.find('\0') != text.npos) {
    throw ConfigError(fmt::format(
        "{}: the file contains NUL bytes, as in UTF-16 and binary files: save the text as UTF-8",
        name));
  }
  text::Diagnostics diagnostics;
  const int source = diagnostics.add_source(name, std::string(text));
  Collector collector;
  int number = 1;
  for (std::string_view rest = text; !rest.empty(); ++number) {
    const std::string_view whole = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(whole.size() + 1, rest.size()));
    try {
      read_line(whole.substr(0, whole.find('#')), collector);
    } catch (const HostSyntaxError& error) {
      diagnostics.error({source, number, static_cast<int>(error.at) + 1}, error.message);
    }
  }
  diagnostics.raise_if_any();
  std::vector<HostSpec> hosts = collector.take();
  if (hosts.empty()) throw ConfigError(fmt::format("{}: names no host", name));
  return hosts;
}

std::vector<HostSpec> without_hosts(std::vector<HostSpec> hosts, std::string_view excluded) {
  std::vector<HostSpec> gone = parse_option("--exclude", excluded, read_host_names);
  std::unordered_set<std::string> known, out;
  for (const HostSpec& host : hosts) known.insert(same_host(host.name));
  for (const HostSpec& host : gone) {
    if (!host.user.empty())
      throw ConfigError(fmt::format("--exclude: '{}@{}': expected a host name without a user",
                                    host.user, host.name));
    if (known.count(same_host(host.name)) == 0) {
      std::vector<std::string> names;
      for (size_t i = 0; i < hosts.size() && i < kMostSuggested; ++i)
        names.push_back(hosts[i].name);
      const auto near = text::nearest(host.name, names);
      throw ConfigError(fmt::format("--exclude: host '{}' is not one of the {}{}", host.name,
                                    hosts_text(hosts.size()),
                                    near ? fmt::format(", did you mean '{}'?", *near) : ""));
    }
    out.insert(same_host(host.name));
  }
  std::vector<HostSpec> left;
  for (const HostSpec& host : hosts) {
    if (out.count(same_host(host.name)) == 0) left.push_back(host);
  }
  if (left.empty()) throw ConfigError("--exclude: no host is left");
  return left;
}

int64_t slots_of(const std::vector<HostSpec>& hosts) {
  int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += host.slots;
  return slots;
}

void settle_slots(std::vector<HostSpec>& hosts, const WantedRanks& wanted) {
  const int count = static_cast<int>(hosts.size());
  const bool said = std::any_of(hosts.begin(), hosts.end(), [](const HostSpec& host) {
    return host.slots != 0 || !host.gpus.empty();
  });
  const int64_t planned = static_cast<int64_t>(wanted.hosts) * wanted.processes_per_host;
  const std::optional<int64_t> all_said = said_slots(hosts);
  const bool placed_anew = planned != 0 && all_said == planned;
  if (!placed_anew && wanted.hosts != 0 && wanted.hosts != count) {
    if (all_said)
      throw ConfigError(
          fmt::format("the plan has {} ranks, but the hosts have {} slots: give as many slots as "
                      "ranks, or plan again",
                      planned, *all_said));
    throw ConfigError(
        fmt::format("the plan is for {}, but {} {} given: give as many hosts as planned, or plan "
                    "again with --hosts {}",
                    hosts_text(static_cast<size_t>(wanted.hosts)), hosts_text(hosts.size()),
                    count == 1 ? "is" : "are", count));
  }
  int unsaid = 1;
  if (wanted.processes_per_host != 0) {
    unsaid = wanted.processes_per_host;
  } else if (!said && wanted.world_size != 0) {
    if (wanted.world_size % count != 0)
      throw ConfigError(
          fmt::format("-n {} ranks do not divide evenly over {} hosts: give the ranks of each "
                      "host, as in --hosts a:3,b:2",
                      wanted.world_size, count));
    unsaid = wanted.world_size / count;
    if (unsaid > kMostSlots)
      throw ConfigError(
          fmt::format("{} ranks per host are more than the maximum of {}", unsaid, kMostSlots));
  }
  for (HostSpec& host : hosts) {
    if (host.slots == 0)
      host.slots = host.gpus.empty() ? unsaid : static_cast<int>(host.gpus.size());
    if (!placed_anew && wanted.processes_per_host != 0 && host.slots != wanted.processes_per_host)
      throw ConfigError(fmt::format(
          "the plan has {} processes per host, but host '{}' has {} slots: write {}:{}, or "
          "plan again with cluster.processes_per_host={}",
          wanted.processes_per_host, host.name, host.slots, host.name, wanted.processes_per_host,
          host.slots));
  }
  if (wanted.world_size != 0 && wanted.world_size != slots_of(hosts))
    throw ConfigError(
        fmt::format("-n gives {} ranks, but the hosts have {} slots: leave -n out, or give as many "
                    "slots as ranks",
                    wanted.world_size, slots_of(hosts)));
}

}  // namespace smp::hosts
