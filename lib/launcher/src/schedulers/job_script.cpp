#include "job_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/request/job_shape.h"
#include "smp/launcher/request/rank_preview.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"

namespace smp::schedulers {
namespace {

constexpr const char* kOmpThreads = "OMP_NUM_THREADS";

// Variables that the script sets when it runs.
bool is_found_there(const std::string& name) {
  constexpr std::array kFound = {env::kMasterAddr, env::kMasterPort, env::kJobId,
                                 env::kJobKey,     env::kRunId,      kOmpThreads};
  return std::find(kFound.begin(), kFound.end(), name) != kFound.end();
}

std::vector<std::string> words_of(const request::Variables& variables) {
  std::vector<std::string> words;
  for (const auto& [name, value] : variables) {
    if (!is_found_there(name)) words.push_back(fmt::format("{}={}", name, value));
  }
  return words;
}

// Exports the variables of --env. The script holds no secrets: the user has to export those before.
std::string named_text(const request::PreparedJob& job) {
  std::string text;
  for (const std::string& variable : job.request.hosts.forward.named) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool is_word = std::all_of(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!is_word || std::isdigit(static_cast<unsigned char>(name.front())) != 0)
      throw ConfigError(fmt::format("{} {}: not a valid name for a variable of the shell",
                                    job.request.hosts.option_of(name), name));
    text += equals == variable.npos || environment::looks_secret(name)
                ? fmt::format(": \"${{{0}?export {0}}}\"; export {0}\n", name)
                : fmt::format("export {}={}\n", name,
                              hosts::quoted_for_shell(variable.substr(equals + 1)));
  }
  return text;
}

std::string head_of_script(const request::PreparedJob& job, size_t hosts) {
  std::string names;
  for (size_t host = 0; host < job.hosts.size(); ++host)
    names += fmt::format("{}{} = {}", host == 0 ? "" : ", ", host, job.hosts[host].name);
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n"
      "# Written by smp-launch --dry-run=sh: starts {} rank{} without smp-launch.\n",
      job.world_size, job.world_size == 1 ? "" : "s");
  if (hosts == 1)
    return text +
           "#   bash job.sh\n"
           "# MASTER_ADDR, MASTER_PORT and SMP_JOB_KEY can be set. If a rank fails, the script "
           "ends\n"
           "# all ranks.\n"
           "set -uo pipefail\n"
           "host=${1:-0}\n"
           ": \"${MASTER_ADDR:=127.0.0.1}\" \"${MASTER_PORT:=29500}\"\n"
           ": \"${SMP_JOB_KEY:=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')}\"\n";
  return text +
         fmt::format(
             "# On each host:  bash job.sh HOST   ({})\n"
             "# with the same MASTER_ADDR (an address of host 0), MASTER_PORT (a free port of host "
             "0)\n"
             "# and SMP_JOB_KEY (64 hex digits, secret) on all hosts. If a rank fails, the script\n"
             "# ends the ranks of its host.\n"
             "set -uo pipefail\n"
             "host=${{1:?the number of this host, 0 to {}}}\n"
             ": \"${{MASTER_ADDR:?an address of host 0}}\" \"${{MASTER_PORT:?a free port of host "
             "0}}\"\n"
             ": \"${{SMP_JOB_KEY:?64 hex digits, the same on all hosts}}\"\n",
             names, hosts - 1);
}

// Throws ConfigError for a name that a #SBATCH line cannot hold.
void check_name_for_slurm(const std::string& name) {
  if (name.find_first_of(" \t\n'\"\\") != name.npos || name.empty())
    throw ConfigError(
        fmt::format("'{}' is not a valid job name: give another with --job-name", name));
}

}  // namespace

std::string shell_script(const request::PreparedJob& job) {
  const std::vector<request::RankPreview> previews = previews_of(job);
  const request::Variables shared = shared_variables(previews);
  const size_t hosts = std::max<size_t>(1, job.hosts.size());
  std::string text = head_of_script(job, hosts);
  text +=
      "SMP_JOB_ID=$(printf %s \"$SMP_JOB_KEY\" | sha256sum | cut -c1-16)\n"
      "TORCHELASTIC_RUN_ID=$SMP_JOB_ID\n"
      "export MASTER_ADDR MASTER_PORT SMP_JOB_KEY SMP_JOB_ID TORCHELASTIC_RUN_ID\n";
  text += named_text(job);
  if (const auto words = words_of(shared); !words.empty())
    text += fmt::format("export {}\n", hosts::command_text(words));
  if (!job.run_dir.empty()) {
    const run::RunFolder folder(job.run_dir);
    text += fmt::format("mkdir -p {0}/logs {0}/errors {0}/weights {0}/checkpoints\n",
                        hosts::quoted_for_shell(folder.path()));
    if (job.plan && job.request.resume.empty())
      text += fmt::format("cp {} {}\n", hosts::quoted_for_shell(job.request.plan),
                          hosts::quoted_for_shell(folder.plan()));
  }
  text += fmt::format(
      "\nrank() {{\n"
      "  local cpus; cpus=$(nproc)\n"
      "  (export \"$@\"\n"
      "   export OMP_NUM_THREADS=\"${{OMP_NUM_THREADS:-$((cpus > LOCAL_WORLD_SIZE ? cpus / "
      "LOCAL_WORLD_SIZE : 1))}}\"\n"
      "   exec {}) </dev/null &\n"
      "}}\n"
      "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
      "case $host in\n",
      hosts::command_text(job.command));
  for (size_t host = 0; host < hosts; ++host) {
    text += fmt::format("{})\n", host);
    int ranks = 0;
    for (const request::RankPreview& preview : previews) {
      if (static_cast<size_t>(preview.place.host) != host) continue;
      text +=
          fmt::format("  rank {}\n", hosts::command_text(words_of(own_variables(preview, shared))));
      ++ranks;
    }
    text += fmt::format("  ranks={};;\n", ranks);
  }
  return text + fmt::format(
                    "*)\n"
                    "  echo \"host $host: expected 0 to {}\" >&2; exit 2;;\n"
                    "esac\n"
                    "while ((ranks-- > 0)); do wait -n || exit; done\n",
                    hosts - 1);
}

std::string sbatch_script(const request::PreparedJob& job) {
  const request::JobShape shape = shape_of(job);
  check_name_for_slurm(shape.name);
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "# Written by smp-launch --dry-run=sbatch; submit it with sbatch.\n"
      "#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node={}\n",
      shape.name, shape.hosts + static_cast<int>(job.spares.size()), shape.ranks_per_host);
  if (shape.gpus_per_host > 0)
    text += fmt::format("#SBATCH --gpus-per-node={}\n", shape.gpus_per_host);
  if (!job.hosts.empty() && job.request.hosts.hosts != request::kSlurm &&
      !job.request.hosts.rendezvous.wanted()) {
    std::vector<std::string> names;
    for (const auto* hosts :
         {&job.hosts, &job.spares}) {  // in the script spares are the last again
      for (const hosts::HostSpec& host : *hosts) names.push_back(host.name);
    }
    text += fmt::format("#SBATCH --nodelist={}\n", fmt::join(names, ","));
  }
  text += "#SBATCH --output=%x-%j.out\n";
  if (job.plan) text += "#SBATCH --signal=B:USR1@120\n";
  std::vector<std::string> words = {job.request.hosts.transport.agent, "--hosts", request::kSlurm};
  // One task a node does not say how many ranks there are.
  if (!job.plan && shape.ranks_per_host == 1) {
    words.emplace_back("-n");
    words.push_back(std::to_string(job.world_size));
  }
  const std::vector<std::string> own = passed_on_words(job);
  words.insert(words.end(), own.begin(), own.end());
  return text + fmt::format("exec {}\n", hosts::command_text(words));
}

}  // namespace smp::schedulers
