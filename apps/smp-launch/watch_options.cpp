#include "watch_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>

#include "command_line.h"
#include "option_values.h"
#include "smp/launcher/request/usage_error.h"

namespace smp {
namespace {

constexpr int kMostRestarts = 1'000'000;
constexpr std::chrono::milliseconds kShortestUsageInterval{500};
constexpr int kMostSpares = 1'000;
constexpr std::array<std::pair<const char*, int>, 6> kSignals = {{{"USR1", SIGUSR1},
                                                                  {"USR2", SIGUSR2},
                                                                  {"TERM", SIGTERM},
                                                                  {"INT", SIGINT},
                                                                  {"HUP", SIGHUP},
                                                                  {"QUIT", SIGQUIT}}};

int number_of(const char* option, const std::string& text, int most) {
  const auto number = whole_number(text);
  if (!number || *number < 0 || *number > most)
    throw request::UsageError(
        fmt::format("{} '{}': expected a whole number from 0 to {}", option, text, most));
  return static_cast<int>(*number);
}

std::set<int> signals_in(std::string_view text) {
  std::set<int> signals;
  for (std::string_view rest = text;;) {
    std::string_view name = rest.substr(0, rest.find(','));
    const bool last = name.size() == rest.size();
    if (!last) rest.remove_prefix(name.size() + 1);
    if (name.starts_with("SIG")) name.remove_prefix(3);
    const auto* known = std::find_if(kSignals.begin(), kSignals.end(),
                                     [&](const auto& one) { return one.first == name; });
    if (known == kSignals.end())
      throw request::UsageError(
          fmt::format("--checkpoint-signal '{}': expected a list of USR1, USR2, TERM, INT, HUP and "
                      "QUIT, as in USR1,TERM",
                      text));
    signals.insert(known->second);
    if (last) return signals;
  }
}

}  // namespace

WatchOptions::WatchOptions(CLI::App& app, request::WatchRequest& request)
    : app_(app), request_(request) {
  app.add_option("--hang-timeout", hang_timeout_,
                 "time without progress of any rank, after which the last known call of each rank "
                 "is printed: a time, off, or auto (default: ten steps, at least 1m); plans only")
      ->type_name("TIME|auto|off");
  app.add_option("--silence-timeout", silence_timeout_,
                 "time without output of any rank, after which the job is reported as hung "
                 "(programs only; default: off)")
      ->type_name("TIME");
  app.add_option("--on-hang", on_hang_,
                 "action on a hang: print (default), or end: also stop the job with exit code 124")
      ->type_name("print|end");
  app.add_option("--hang-dump", hang_dump_,
                 "what is printed of hung ranks: none (default); calls: the last calls and memory "
                 "of a plan's ranks; quit: what a program prints on SIGQUIT; gdb: the stacks of "
                 "all threads; py-spy: the stacks of Python")
      ->type_name("none|calls|quit|gdb|py-spy");
  app.add_option("--max-restarts", most_,
                 "restart the ranks after a failure, at most N times (default: 0). A plan restarts "
                 "from its last checkpoint, but not after two failures at the same step. In a "
                 "manifest: the cluster restarts all pods")
      ->type_name("N");
  app.add_option(
         "--restart-pause", pause_,
         "time before the first restart, doubled for each further restart up to 1m (default: 1s)")
      ->type_name("TIME");
  app.add_option("--spares", spares_,
                 "keep the last N hosts as spares, which replace lost hosts (default: 0)")
      ->type_name("N");
  app.add_option(
         "--prometheus", request.metrics_file,
         "write ranks, step, loss and speed to this file, for Prometheus's textfile collector")
      ->type_name("FILE");
  app.add_option("--usage-every", usage_,
                 "time between samples of CPU, memory, network and GPUs in the run folder's "
                 "usage.jsonl, at least 500ms, or off (default: 1s; more with more than 64 ranks)")
      ->type_name("TIME|off");
  app.add_option("--checkpoint-signal", signals_,
                 "signals to smp-launch on which the ranks of a plan save a checkpoint and end, "
                 "with exit code 75, as in USR1,TERM (default: USR1)")
      ->type_name("SIGNALS");
  app.add_option("--checkpoint-grace", grace_,
                 "time limit for that checkpoint, after which the job is stopped as by any other "
                 "signal (default: no limit)")
      ->type_name("TIME");
}

void WatchOptions::finish(const request::HostRequest& hosts, bool is_plan) {
  finish_hang(is_plan);
  finish_hang_dump(is_plan);
  finish_restarts();
  finish_checkpoints();
  finish_usage();
  if (request_.spares > 0 && !hosts.several())
    throw request::UsageError(
        "--spares is for jobs on other hosts: name the hosts with --hosts or --hostfile");
  for (const char* option : {"--checkpoint-signal", "--checkpoint-grace"}) {
    if (!is_plan && app_.count(option) > 0)
      throw request::UsageError(
          fmt::format("{} is for plans: a program gets the signals itself", option));
  }
}

void WatchOptions::finish_hang(bool is_plan) {
  if (is_plan && !silence_timeout_.empty())
    throw request::UsageError(
        "--silence-timeout is for programs: the ranks of a plan report their progress");
  if (!silence_timeout_.empty()) {
    request_.rules.hang_limit.output_timeout = duration_of("--silence-timeout", silence_timeout_);
    if (request_.rules.hang_limit.output_timeout->count() == 0)
      throw request::UsageError(
          "--silence-timeout 0: expected a time above 0; leave the option out for no time-out");
  }
  if (hang_timeout_ == "off")
    request_.rules.hang_limit.off = true;
  else if (!hang_timeout_.empty() && hang_timeout_ != "auto")
    request_.rules.hang_limit.time = duration_of("--hang-timeout", hang_timeout_);
  if (request_.rules.hang_limit.time && request_.rules.hang_limit.time->count() == 0)
    throw request::UsageError("--hang-timeout 0: expected a time above 0, auto or off");
  if (!on_hang_.empty() && on_hang_ != "print" && on_hang_ != "end")
    throw request::UsageError(fmt::format("--on-hang {}: expected print or end", on_hang_));
  request_.rules.ends_on_hang = on_hang_ == "end";
  if (request_.rules.ends_on_hang && request_.rules.hang_limit.off && silence_timeout_.empty())
    throw request::UsageError(
        "--on-hang end needs a time-out, but --hang-timeout is off: give a time");
}

void WatchOptions::finish_hang_dump(bool is_plan) {
  constexpr std::array<std::pair<const char*, job::HangDump>, 5> kDumps = {
      {{"none", job::HangDump::kNone},
       {"calls", job::HangDump::kCalls},
       {"quit", job::HangDump::kQuit},
       {"gdb", job::HangDump::kGdb},
       {"py-spy", job::HangDump::kPySpy}}};
  if (hang_dump_.empty()) return;
  const auto* known = std::find_if(kDumps.begin(), kDumps.end(),
                                   [&](const auto& one) { return one.first == hang_dump_; });
  if (known == kDumps.end())
    throw request::UsageError(
        fmt::format("--hang-dump {}: expected none, calls, quit, gdb or py-spy", hang_dump_));
  request_.rules.hang_dump = known->second;
  if (request_.rules.hang_dump != job::HangDump::kNone && request_.rules.hang_limit.off &&
      silence_timeout_.empty())
    throw request::UsageError(
        "--hang-dump needs a time-out, but --hang-timeout is off: give a time");
  if (request_.rules.hang_dump == job::HangDump::kCalls && !is_plan)
    throw request::UsageError(
        "--hang-dump calls is for plans: for a program use gdb, py-spy or quit");
  if (request_.rules.hang_dump == job::HangDump::kQuit && (is_plan || !request_.rules.ends_on_hang))
    throw request::UsageError(
        "--hang-dump quit is for programs and needs --on-hang end: SIGQUIT ends a program that has "
        "no handler for it");
}

void WatchOptions::finish_restarts() {
  if (!most_.empty()) request_.restarts.most = number_of("--max-restarts", most_, kMostRestarts);
  if (!spares_.empty()) request_.spares = number_of("--spares", spares_, kMostSpares);
  if (!pause_.empty()) request_.restarts.pause = duration_of("--restart-pause", pause_);
  for (const char* option : {"--restart-pause", "--spares"}) {
    if (app_.count(option) > 0 && request_.restarts.most == 0)
      throw request::UsageError(fmt::format("{} is for --max-restarts: give both", option));
  }
}

void WatchOptions::finish_usage() {
  request_.samples_usage = usage_ != "off";
  if (usage_.empty() || !request_.samples_usage) return;
  request_.usage_interval = duration_of("--usage-every", usage_);
  if (*request_.usage_interval < kShortestUsageInterval)
    throw request::UsageError(
        fmt::format("--usage-every {}: expected a time of at least 500ms, or off", usage_));
}

void WatchOptions::finish_checkpoints() {
  if (!signals_.empty()) request_.rules.checkpoint_signals = signals_in(signals_);
  if (!grace_.empty()) request_.rules.checkpoint_grace = duration_of("--checkpoint-grace", grace_);
}

}  // namespace smp
