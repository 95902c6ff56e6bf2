#include "smp/launcher/probe/network_probe.h"

#include <fmt/format.h>
#include <poll.h>

#include <sstream>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/plan/base/random_hex.h"

namespace smp::probe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTokenBytes = 16;
constexpr std::chrono::milliseconds kForStarts{10'000};

// What the processes say, line by line.
class ProbeLines : public job::IgnoredEvents {
 public:
  struct Said {
    std::string waiting, ended;  // a line that is not whole; why no more will come
    int port = 0;
    bool done = false;
    LinkFacts link;
    std::vector<int> reached_us;
    std::vector<std::pair<int, std::string>> unreached;  // host, why
  };
  explicit ProbeLines(size_t hosts) : said(hosts) {}

  void on_output(int process, job::Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point) override {
    if (stream == job::Stream::kErr) return;
    Said& one = said[static_cast<size_t>(process)];
    one.waiting.append(bytes);
    for (size_t end = one.waiting.find('\n'); end != one.waiting.npos;
         end = one.waiting.find('\n')) {
      take(one, one.waiting.substr(0, end));
      one.waiting.erase(0, end + 1);
    }
  }
  void on_ended(int process, const process::ProcessEnd&) override {
    end(process, "smp-launch --probe ended on this host");
  }
  void on_start_failed(int process, const std::string& why) override { end(process, why); }
  void on_lost(int process, const job::HostLoss& loss) override { end(process, loss.why); }

  std::vector<Said> said;

 private:
  void end(int process, const std::string& why) {
    std::string& ended = said[static_cast<size_t>(process)].ended;
    if (ended.empty()) ended = why;
  }

  static void take(Said& one, const std::string& line) {
    std::istringstream words(line);
    std::string what, rest;
    words >> what;
    if (what == "here") {
      words >> one.port >> one.link.speed_mbps >> one.link.state >> one.link.name;
      if (one.link.name == "-") one.link = {};
      if (one.link.state == "-") one.link.state.clear();
    } else if (what == "reached") {
      int host = 0, us = 0;
      words >> host >> us;
      one.reached_us.push_back(us);
    } else if (what == "unreached") {
      int host = 0;
      words >> host >> std::ws;
      std::getline(words, rest);
      one.unreached.emplace_back(host, rest);
    } else if (what == "done") {
      one.done = true;
    } else {
      one.ended = line;  // why it cannot
    }
  }
};

template <typename Ready>
void wait_until(agent::HostGroup& group, ProbeLines& lines, std::chrono::milliseconds time,
                Ready ready) {
  const auto deadline = Clock::now() + time;
  while (!ready() && Clock::now() < deadline) {
    pollfd wake{group.event_fd(), POLLIN, 0};
    poll(&wake, 1, 100);
    group.dispatch(lines);
  }
}

}  // namespace

std::vector<ProbedHost> probe_network(agent::HostGroup& group,
                                      const std::vector<std::string>& names,
                                      const std::vector<std::string>& addresses,
                                      const std::string& program,
                                      std::chrono::milliseconds patience) {
  const size_t hosts = names.size();
  ProbeLines lines(hosts);
  const std::string token = random_hex(kTokenBytes);
  std::vector<size_t> asked;
  for (size_t host = 0; host < hosts; ++host) {
    if (addresses[host].empty()) continue;
    asked.push_back(host);
    const int process = static_cast<int>(host);
    group.place(process, process);
    job::Command command;
    command.arguments = {program, "--probe"};
    command.reads_input = true;
    group.start(process, command);
    group.give_input(process,
                     fmt::format("listen {} {} {}\n", token, addresses[host], patience.count()));
  }
  const auto all = [&](auto is) {
    for (const size_t host : asked) {
      if (lines.said[host].ended.empty() && !is(lines.said[host])) return false;
    }
    return true;
  };
  wait_until(group, lines, kForStarts,
             [&] { return all([](const ProbeLines::Said& one) { return one.port != 0; }); });
  for (const size_t from : asked) {
    std::string text;
    for (const size_t to : asked) {
      if (to != from && lines.said[to].port != 0)
        text += fmt::format("peer {} {} {}\n", to, addresses[to], lines.said[to].port);
    }
    if (lines.said[from].ended.empty()) group.give_input(static_cast<int>(from), text + "go\n");
  }
  // Each tries so many at once; all of them may have to wait.
  wait_until(group, lines, kForStarts + patience * (1 + static_cast<int>(hosts) / 128),
             [&] { return all([](const ProbeLines::Said& one) { return one.done; }); });
  std::vector<ProbedHost> probed(hosts);
  for (const size_t host : asked) {
    const ProbeLines::Said& said = lines.said[host];
    ProbedHost& one = probed[host];
    one.address = addresses[host];
    one.link = said.link;
    one.reached_us = said.reached_us;
    for (const auto& [to, why] : said.unreached)
      one.unreached.push_back(fmt::format("host {} at {}: {}", names[static_cast<size_t>(to)],
                                          addresses[static_cast<size_t>(to)], why));
    if (!said.done)
      one.unreached.push_back(
          fmt::format("the others: {}", said.ended.empty() ? "no answer" : said.ended));
  }
  for (const size_t host : asked) {
    if (lines.said[host].ended.empty()) group.end_input(static_cast<int>(host));
  }
  group.finish(lines);
  return probed;
}

}  // namespace smp::probe
