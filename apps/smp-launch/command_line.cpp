#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>

#include "check_forms.h"
#include "check_names.h"
#include "completion.h"
#include "host_options.h"
#include "option_values.h"
#include "output_options.h"
#include "show_samples.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/suggest.h"
#include "torchrun_options.h"
#include "watch_options.h"

namespace smp {
namespace {

constexpr const char* kTorchrun = "--torchrun-compat";
constexpr const char* kVersion = "smp-launch 0.1.0";

constexpr const char* kDescription =
    R"(Starts the ranks of a job on this host or on many hosts, watches them until all have ended, and reports
the cause of a failure.

Examples:
  smp-launch plan.yaml                        train as the plan says; output goes to runs/<job>-<time>/
  smp-launch --run-dir runs/a plan.yaml       ... to runs/a/
  smp-launch --resume --run-dir runs/a plan.yaml   resume from the last checkpoint in runs/a/; the plan may be
                                              another layout of the same model
  smp-launch --dry-run plan.yaml              check all that can be checked without starting a rank
  smp-launch --build-only plan.yaml           build rank 0 of a plan of any size alone, and print its memory
  smp-launch --show-samples 3-5 plan.yaml     source, document and offset of each sample of these steps
  smp-launch --show-ranks all plan.yaml       show the output of every rank, not only of rank 0
  smp-launch --max-restarts 3 plan.yaml       after a failure restart from the last checkpoint
  smp-launch --status runs/a                  print the state of that run
  smp-launch -n 4 -- python3 train.py --lr 1  any program, with the environment that torchrun sets
  smp-launch --hosts node[01-04]:8 -- python3 train.py   ... on four hosts, over ssh
  smp-launch --check --hosts node[01-04]:8    check whether these hosts are fit for a job
  smp-launch report runs/a --html a.html      compare the measurements of that run with its plan, in charts
  smp-launch doctor [--json]                  check whether this host is fit for a job, and say how to fix it

If a rank fails, smp-launch names the first failed rank, the reason and the last lines of that rank. It
stops the other ranks: SIGTERM, then SIGKILL after --grace, then all processes that the ranks had started.

Exit code:
  0          every rank ended with 0
  1 to 255   the exit code of the first rank that failed (128 + signal if a signal killed it)
  2          wrong usage
  3          broken plan or run folder
  75         after SIGUSR1 the ranks saved a checkpoint and ended
  124        stopped by --timeout or --on-hang end
  125        error of smp-launch itself, or a lost host
  130, 143   stopped by Ctrl-C (a second Ctrl-C kills at once) or SIGTERM
)";

// Flags with an optional value, and that value as --help shows it.
constexpr std::array<std::pair<const char*, const char*>, 3> kOptionalValues = {
    {{"--resume", "[=STEP|if-any]"}, {"--dry-run", "[=FORM]"}, {"--build-only", "[=RANK]"}}};

class Help : public CLI::Formatter {
 public:
  Help() { column_width(24); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: smp-launch [options] plan.yaml\n"
           "       smp-launch [options] -n N -- program arguments\n"
           "       smp-launch [options] --hosts LIST -- program arguments\n";
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }
  // CLI11 shows a flag with an optional value as --resume{latest}.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    for (const auto& [flag, value] : kOptionalValues) {
      if (name.starts_with(flag)) name = std::string(flag) + value;
    }
    return name;
  }
};

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// Refuses words that CLI11 could not parse: mistyped options, or more words than one plan.
void refuse_leftovers(const std::vector<std::string>& words, const CLI::App& app,
                      const std::string& plan) {
  if (words.empty()) return;
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    const auto near = word[1] == '-' ? text::nearest(name, option_names(app)) : std::nullopt;
    throw request::UsageError(fmt::format("unknown option '{}'{}", name,
                                          near ? fmt::format(", did you mean '{}'?", *near) : ""));
  }
  throw request::UsageError(
      fmt::format("unexpected argument '{}' after '{}': give one plan, or a program after '--', as "
                  "in smp-launch -n 4 -- {} {}",
                  words.front(), plan, plan, fmt::join(words, " ")));
}

int parse_ranks(const std::string& text, int most) {
  const std::optional<int64_t> ranks = whole_number(text);
  if (!ranks || *ranks < 1 || *ranks > most)
    throw request::UsageError(
        fmt::format("-n '{}': expected a number of ranks from 1 to {}", text, most));
  return static_cast<int>(*ranks);
}

constexpr std::array<std::pair<const char*, request::DryRun>, 9> kDryRuns = {
    {{"text", request::DryRun::kText},
     {"ranks", request::DryRun::kRanks},
     {"json", request::DryRun::kJson},
     {"sh", request::DryRun::kSh},
     {"sbatch", request::DryRun::kSbatch},
     {"jobset", request::DryRun::kJobset},
     {"mpijob", request::DryRun::kMpijob},
     {"trainjob", request::DryRun::kTrainjob},
     {"lws", request::DryRun::kLws}}};

request::DryRun dry_run_of(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, form] : kDryRuns) {
    if (text == name) return form;
    names.emplace_back(name);
  }
  throw request::UsageError(
      fmt::format("--dry-run={}: expected --dry-run or --dry-run={}", text, fmt::join(names, "|")));
}

void check_skipped(const request::LaunchRequest& request) {
  if (request.skipped.empty()) return;
  if (request.dry_run == request::DryRun::kNo)
    throw request::UsageError("--skip is for --dry-run: a launch makes every check");
  for (const std::string& name : request.skipped) {
    if (std::find(kCheckNames.begin(), kCheckNames.end(), name) != kCheckNames.end()) continue;
    throw request::UsageError(fmt::format("--skip '{}': unknown check; the checks are {}", name,
                                          fmt::join(kCheckNames, ", ")));
  }
}

void check_resume(const std::string& text) {
  if (!text.empty() && text != "latest" && text != request::kResumeIfAny &&
      whole_number(text).value_or(0) <= 0)
    throw request::UsageError(fmt::format(
        "--resume={}: expected --resume, --resume=if-any or --resume=STEP, as in --resume=100",
        text));
}

int build_rank_of(const std::string& text) {
  const std::optional<int64_t> rank = whole_number(text);
  if (!rank || *rank < 0 || *rank >= request::kMostRanks)
    throw request::UsageError(fmt::format(
        "--build-only={}: expected --build-only or --build-only=RANK, as in --build-only=7", text));
  return static_cast<int>(*rank);
}

// The options as typed, for scripts that pass them on.
std::vector<request::SaidOption> said_options(const CLI::App& app) {
  std::vector<request::SaidOption> said;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const bool is_long = !option->get_lnames().empty();
    const std::string name =
        is_long ? "--" + option->get_lnames().front() : "-" + option->get_snames().front();
    said.push_back({name, option->results(), option->get_items_expected_max() == 0});
  }
  return said;
}

// Translates the words behind --torchrun-compat, which are torchrun's.
std::vector<std::string> typed_words(std::vector<std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto mark = std::find(words.begin(), end, kTorchrun);
  if (mark == end) return words;
  const std::vector<std::string> ours =
      words_of_torchrun({mark + 1, words.end()}, environment::own_environment());
  words.erase(mark, words.end());
  words.insert(words.end(), ours.begin(), ours.end());
  return words;
}

}  // namespace

request::LaunchRequest parse_command_line(int argc, const char* const* argv) {
  request::LaunchRequest request;
  // Everything behind the first "--" is the program, whatever it looks like.
  std::vector<std::string> ours;
  bool has_program_mark = false;
  for (const std::string& word : typed_words({argv + 1, argv + argc})) {
    if (has_program_mark)
      request.program.push_back(word);
    else if (word == "--")
      has_program_mark = true;
    else
      ours.push_back(word);
  }

  CLI::App app(kDescription, "smp-launch");
  std::string ranks, grace, timeout, comm_timeout, dry_run, build_only, binding;
  app.formatter(std::make_shared<Help>());
  app.add_option("plan", request.plan, "plan file, written by smp-plan")->type_name("");
  app.add_option("-n", ranks, "number of ranks to start (programs only)")->type_name("N");
  app.add_option(
         "--run-dir", request.run_dir,
         "folder for logs, metrics, checkpoints, report and weights; without --resume it must be "
         "empty or absent (default: runs/<job>-<UTC time> for a plan, none for a program)")
      ->type_name("DIR");
  app.add_flag(
      "--resume{latest}", request.resume,
      "resume from the last checkpoint in --run-dir (plans only). --resume=STEP: from the "
      "checkpoint of this step. --resume=if-any: start at step 0 if there is no checkpoint yet");
  app.add_option("--stdin", request.input_ranks,
                 "ranks that read standard input, as in 0, or all (programs only; default: none)")
      ->type_name("RANKS");
  OutputOptions output_options(app, request.output);
  WatchOptions watch_options(app, request.watch);
  app.add_option("--grace", grace,
                 "time between SIGTERM and SIGKILL when ranks are stopped (default: 5s)")
      ->type_name("TIME");
  app.add_option("--timeout", timeout, "stop the job after this time, with exit code 124")
      ->type_name("TIME");
  app.add_option("--comm-timeout", comm_timeout,
                 "how long a rank waits for its peers in one collective (plans only; default: 5m)")
      ->type_name("TIME");
  app.add_option("--report", request.report_json,
                 "write the end of each rank and the cause of a failure to this file, as JSON")
      ->type_name("FILE");
  app.add_flag(
      "--dry-run{text}", dry_run,
      "check plan, memory, schedule, data and paths, and start nothing; the checks and then the "
      "verdict are printed on standard error. ranks: print each rank's host, environment and "
      "command too; json: the same as JSON; sh, sbatch: print the job as a script for the shell or "
      "Slurm; jobset, mpijob, trainjob, lws: print it as a manifest for Kubernetes");
  app.add_option("--skip", request.skipped,
                 "check that a dry run leaves out, as in --skip data if the data is on another "
                 "machine; may be repeated")
      ->type_name("CHECK")
      ->allow_extra_args(false);
  app.add_flag("--check", request.check,
               "reach the hosts and print a table with the build, clock, memory, /dev/shm, limits, "
               "GPUs and driver of each host; start nothing")
      ->disable_flag_override();
  app.add_option(
         "--job-name", request.job_name,
         "name of the job in a script or manifest (default: the name of the plan or program)")
      ->type_name("NAME");
  app.add_option("--image", request.image, "container image in a manifest")->type_name("IMAGE");
  app.add_flag("--build-only{0}", build_only,
               "build only rank 0 of the plan (--build-only=RANK: only this rank) on this host, "
               "and print its memory beside the predicted memory");
  app.add_option("--show-samples", request.show_samples,
                 "print source, document, offset and tokens of each sample of these steps, as in "
                 "3-5; start nothing (plans only)")
      ->type_name("STEPS");
  app.add_option(
         "--bind", binding,
         "bind each rank to CPUs: numa (of one memory node, that of its GPU if it has one), nic "
         "(of the memory node of its network card), core (its own cores) or none (default)")
      ->type_name("numa|nic|core|none");
  app.add_flag("--report-bindings", request.report_bindings,
               "print the CPUs of each rank, and the GPU or network card next to these CPUs")
      ->disable_flag_override();
  app.add_flag("--tensor-across-hosts", request.tensor_across_hosts,
               "start a plan whose tensor groups have ranks on several hosts")
      ->disable_flag_override();
  app.add_option("--status", request.status_of,
                 "print the state of the run in this folder; start nothing")
      ->type_name("RUN");
  HostOptions host_options(app, request.hosts);
  bool torchrun = false;  // its words were replaced before
  app.add_flag(kTorchrun, torchrun,
               "read the arguments that follow, and the PET_* variables, as torchrun does: "
               "smp-launch --torchrun-compat --nproc-per-node 8 train.py");
  std::string shell;
  app.add_option("--completion", shell, "print a completion script for a shell")
      ->type_name("bash|zsh|fish");
  bool version = false;
  app.add_flag("--version", version, "print the version")->disable_flag_override();
  app.set_help_flag("-h,--help", "print this text");
  app.allow_extras();
  try {
    std::reverse(ours.begin(), ours.end());  // CLI11 takes them from the back
    app.parse(ours);
  } catch (const CLI::CallForHelp&) {
    throw Information{app.help()};
  } catch (const CLI::ArgumentMismatch& error) {  // its texts start with the option's name
    const std::string text = error.what();
    if (text.find("disallowed flag override") != text.npos)
      throw request::UsageError("--version takes no value");
    const bool missing = text.find("missing") != text.npos;
    throw request::UsageError(text.substr(0, text.find(':')) +
                              (missing ? " needs a value" : " is given more than once"));
  } catch (const CLI::ParseError& error) {
    throw request::UsageError(error.what());
  }
  if (version) throw Information{std::string(kVersion) + "\n"};
  if (app.count("--completion") > 0) {
    try {
      throw Information{completion_script(app, "smp-launch", shell)};
    } catch (const UnknownShell& error) {
      throw request::UsageError(error.what());
    }
  }
  refuse_leftovers(app.remaining(), app, request.plan);

  for (const char* place : {"--run-dir", "--report", "--prometheus"}) {
    if (app.count(place) > 0 && app[place]->as<std::string>().empty())
      throw request::UsageError(fmt::format("{}: the value is empty", place));
  }
  if (!grace.empty()) request.watch.rules.grace = duration_of("--grace", grace);
  if (!timeout.empty()) request.timeout = duration_of("--timeout", timeout);
  if (!comm_timeout.empty()) {
    request.comm_timeout = duration_of("--comm-timeout", comm_timeout);
    if (request.comm_timeout->count() == 0)
      throw request::UsageError("--comm-timeout 0: expected a time of at least 1ms");
  }
  if (!dry_run.empty()) request.dry_run = dry_run_of(dry_run);
  if (!build_only.empty()) request.build_only = build_rank_of(build_only);
  try {
    if (!binding.empty()) request.binding = local::parse_binding(binding);
  } catch (const ConfigError& error) {
    throw request::UsageError(error.what());
  }
  if (request.report_bindings && request.binding == local::Binding::kNone)
    throw request::UsageError("--report-bindings needs --bind numa, nic or core");
  check_skipped(request);
  if (request.tensor_across_hosts && request.plan.empty())
    throw request::UsageError("--tensor-across-hosts is for plans");
  if (!request.show_samples.empty()) {
    step_range_of(request.show_samples);
    if (request.plan.empty()) throw request::UsageError("--show-samples needs a plan");
  }
  request.said = said_options(app);
  output_options.finish();
  host_options.finish(request.dry_run != request::DryRun::kNo);
  watch_options.finish(request.hosts, !request.plan.empty());
  if (app.count("--usage-every") > 0 && request.plan.empty() && request.run_dir.empty())
    throw request::UsageError(
        "--usage-every needs --run-dir: the samples are written to the run folder");
  check_resume(request.resume);
  check_forms(request, has_program_mark, ranks);
  if (!ranks.empty())
    request.ranks =
        parse_ranks(ranks, request.hosts.several() ? request::kMostRanks : hosts::kMostSlots);
  take_outer_ranks(request);
  return request;
}

}  // namespace smp
