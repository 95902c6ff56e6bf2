#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "smp/launcher/health/bytes_text.h"
#include "smp/launcher/health/host_health.h"

namespace smp::health {
namespace {

constexpr int64_t kMostSkewMs = 1000;  // beyond it logs of several hosts tell a wrong order

constexpr std::array kHead = {"host",     "reached", "clock",     "cpus", "memory free",
                              "/dev/shm", "files",   "processes", "GPUs", "driver"};
using Row = std::array<std::string, kHead.size()>;

Row row_of(const CheckedHost& host) {
  if (!host.why_not.empty()) return {host.name, "NO", "", "", "", "", "", "", "", ""};
  const HostHealth& health = host.health;
  return {host.name, "yes",
          // Tenths of a second, and no "-0.0".
          fmt::format("{:+.1f} s", static_cast<double>(host.clock_skew_ms / 100) / 10),
          std::to_string(health.cpus), text_of_bytes(health.memory_free_bytes),
          text_of_bytes(health.shm_free_bytes), limit_text(health.open_files),
          limit_text(health.processes), std::to_string(health.gpus.size()),
          health.driver.empty() ? "-" : health.driver};
}

std::string text_of_rows(const std::vector<Row>& rows) {
  std::array<size_t, kHead.size()> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// What is said of most hosts, and who differs.
void find_differing(const std::vector<CheckedHost>& hosts, const char* what,
                    std::string (*value_of)(const HostHealth&), std::vector<std::string>& wrong) {
  std::map<std::string, int> counts;
  for (const CheckedHost& host : hosts) {
    if (host.why_not.empty()) ++counts[value_of(host.health)];
  }
  if (counts.size() < 2) return;
  const auto usual =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const CheckedHost& host : hosts) {
    if (host.why_not.empty() && value_of(host.health) != usual->first)
      wrong.push_back(fmt::format(
          "host {}: {} '{}', but '{}' on {} other{}: install the same on all hosts", host.name,
          what, value_of(host.health), usual->first, usual->second, usual->second == 1 ? "" : "s"));
  }
}

// One slow link holds all up.
void find_slower_links(const std::vector<CheckedHost>& hosts, std::vector<std::string>& wrong) {
  const auto fastest = std::max_element(
      hosts.begin(), hosts.end(),
      [](const CheckedHost& a, const CheckedHost& b) { return a.link_mbps < b.link_mbps; });
  for (const CheckedHost& host : hosts) {
    if (host.link_mbps != 0 && host.link_mbps < fastest->link_mbps)
      wrong.push_back(
          fmt::format("host {}: {}, but host {} has {}: check the cable and switch of the slower "
                      "host, or leave that host out (--exclude)",
                      host.name, host.link, fastest->name, fastest->link));
  }
}

std::string text_of_network(const std::vector<CheckedHost>& hosts) {
  std::string text;
  std::map<std::string, int> links;
  std::vector<int> times;
  for (const CheckedHost& host : hosts) {
    if (!host.link.empty()) ++links[host.link];
    times.insert(times.end(), host.reached_us.begin(), host.reached_us.end());
  }
  for (const auto& [link, count] : links)
    text += fmt::format("ranks of {} host{} meet over {}\n", count, count == 1 ? "" : "s", link);
  if (times.empty()) return text;
  std::sort(times.begin(), times.end());
  const auto ms = [](int us) { return static_cast<double>(us) / 1000; };
  return text + fmt::format(
                    "{} connections between hosts: {:.2f} ms to {:.2f} ms, half of them below "
                    "{:.2f} ms\n",
                    times.size(), ms(times.front()), ms(times.back()), ms(times[times.size() / 2]));
}

}  // namespace

HostTable table_of(const std::vector<CheckedHost>& hosts) {
  std::vector<Row> rows = {{}};
  std::copy(kHead.begin(), kHead.end(), rows.front().begin());
  std::vector<std::string> wrong, notes;
  for (const CheckedHost& host : hosts) {
    rows.push_back(row_of(host));
    if (!host.why_not.empty()) {
      wrong.push_back(fmt::format("host {}: {}", host.name, host.why_not));
      continue;
    }
    for (const HealthFinding& finding : findings_of(host.health, host.requirements)) {
      if (finding.ok) continue;
      (finding.optional ? notes : wrong)
          .push_back(fmt::format("host {}: {}: {}: {}", host.name, finding.name, finding.text,
                                 finding.fix));
    }
    if (std::abs(host.clock_skew_ms) > kMostSkewMs)
      wrong.push_back(fmt::format("host {}: its clock is {:+.1f} s off: run chrony or ntpd",
                                  host.name, static_cast<double>(host.clock_skew_ms) / 1000));
  }
  find_differing(
      hosts, "driver", [](const HostHealth& health) { return health.driver; }, wrong);
  find_differing(
      hosts, "GPUs",
      [](const HostHealth& health) { return health.gpus.empty() ? "none" : health.gpus.front(); },
      wrong);
  find_slower_links(hosts, wrong);
  for (const CheckedHost& host : hosts) {
    for (const std::string& other : host.unreached)
      wrong.push_back(
          fmt::format("host {}: does not reach {}: check for a firewall between the hosts, or for "
                      "another network (--interface)",
                      host.name, other));
  }
  HostTable table;
  table.ok = wrong.empty();
  table.text = text_of_rows(rows) + "\n";
  table.text += text_of_network(hosts);
  for (const std::string& line : wrong) table.text += line + "\n";
  for (const std::string& line : notes) table.text += "note: " + line + "\n";
  table.text +=
      wrong.empty()
          ? fmt::format("{} host{}: no problem found\n", hosts.size(), hosts.size() == 1 ? "" : "s")
          : fmt::format("{} thing{} wrong\n", wrong.size(), wrong.size() == 1 ? " is" : "s are");
  return table;
}

}  // namespace smp::health
