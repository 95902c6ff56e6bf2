#include "make_launch_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/output/rank_template.h"
#include "smp/launcher/request/job_variables.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/random_hex.h"
#include "smp/plan/env/environment.h"

namespace smp::launch {

std::vector<std::string> inherited_environment(const request::PreparedJob& prepared) {
  const environment::ForwardRules& rules = prepared.request.hosts.forward;
  std::vector<std::string> own = environment::own_environment();
  if (prepared.request.comm_timeout)
    own = environment::merged_environment(
        own, {request::comm_timeout_variable(*prepared.request.comm_timeout)});
  if (!prepared.hosts.empty()) return environment::forwarded_variables(own, rules);
  return environment::merged_environment(own, environment::named_variables(own, rules.named));
}

namespace {

job::OutputRules output_rules(const request::PreparedJob& prepared, const run::RunFolder* folder,
                              const ReachedHosts& reached, bool on_terminal) {
  const request::OutputRequest& request = prepared.request.output;
  job::OutputRules rules;
  rules.shown_ranks = hosts::parse_rank_list(request.shown_ranks, prepared.world_size);
  rules.prefix = request.prefix;
  if (reached.names.empty()) rules.host_name = reached.host->name();
  rules.fold = request.fold;
  rules.live = on_terminal && rules.shown_ranks.size() == 1 && !prepared.plan;
  rules.coloured = on_terminal && isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  rules.log_limit = request.log_limit;
  for (size_t host = 0; request.host_logs && host < std::max<size_t>(prepared.hosts.size(), 1);
       ++host)
    rules.host_logs.push_back(folder->host_log(static_cast<int>(host)));
  return rules;
}

void name_logs(const request::OutputRequest& request, const run::RunFolder& folder,
               const output::RankTemplate& name, output::RankWords words, job::RankFiles& files) {
  files.out_log = request.rank_logs ? folder.log(name.fill(words)) : "";
  words.stream = job::Stream::kErr;
  files.err_log = request.rank_logs ? folder.log(name.fill(words)) : "";
}

}  // namespace

int console_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

job::LaunchJob make_launch_job(const request::PreparedJob& prepared, const run::RunFolder* folder,
                               const ReachedHosts& reached, const StartAttempt& attempt) {
  environment::JobVariables shared = request::job_variables(prepared, folder);
  shared.master_address = reached.master_address;
  shared.master_port = reached.master_port;
  shared.host_names = environment::host_names_of(reached.own_names);
  shared.job_id = random_hex(8);
  shared.job_key = random_hex(32);
  shared.resume = attempt.resume;
  shared.restarts = attempt.restarts;
  if (folder != nullptr && prepared.plan) shared.plan = folder->plan_to_start();

  const std::vector<std::string> inherited = inherited_environment(prepared);
  job::LaunchJob job;
  job.id = shared.job_id;
  job.hosts = reached.names;
  const int columns = console_columns();
  job.output = output_rules(prepared, folder, reached, columns > 0);
  const output::RankTemplate prefix("--prefix", job.output.prefix);
  const output::RankTemplate log_name("--log-name", prepared.request.output.log_name);
  for (int rank = 0; rank < prepared.world_size; ++rank) {
    const environment::RankPlace& place = reached.places[static_cast<size_t>(rank)];
    job.host_of_rank.push_back(place.host);
    output::RankWords words{
        {rank},
        {place.local_rank},
        job.hosts.empty() ? job.output.host_name : job.hosts[static_cast<size_t>(place.host)]};
    job.files.push_back(folder != nullptr ? folder->files_of(rank) : job::RankFiles{});
    if (folder != nullptr)
      name_logs(prepared.request.output, *folder, log_name, words, job.files.back());
    auto set =
        environment::variables_of_rank(shared, place, rank, job.files.back().error_file, inherited);
    if (job.output.live && job.output.shown_ranks.count(rank) != 0)
      set.push_back(fmt::format("{}={}", env::kConsoleColumns,
                                columns - static_cast<int>(prefix.fill(words).size())));
    job.commands.push_back({prepared.command, environment::merged_environment(inherited, set),
                            job.files.back().error_file});
  }
  job.input_ranks = hosts::parse_rank_list(prepared.request.input_ranks, prepared.world_size);
  if (prepared.plan)  // smp-worker takes them (rank_signals.h)
    for (job::Command& command : job.commands) command.held_signals = {SIGUSR1, SIGUSR2};
  for (const int rank : job.input_ranks) job.commands[static_cast<size_t>(rank)].reads_input = true;
  for (size_t rank = 0; rank < reached.cpus.size(); ++rank)
    job.commands[rank].cpus = reached.cpus[rank];
  job.timeout = attempt.timeout;
  job.rules = prepared.request.watch.rules;
  job.saves_on_request = prepared.plan.has_value();
  job.requeue = schedulers::requeue_command();
  return job;
}

}  // namespace smp::launch
