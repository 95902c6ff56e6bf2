#include "smp/launcher/request/job_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "smp/launcher/environment/forwarding.h"
#include "smp/plan/base/errors.h"

namespace smp::request {
namespace {

// Options about the hosts, which the scheduler chooses, and about the dry run itself.
constexpr std::array kNotPassedOn = {"--dry-run",    "--job-name",    "--image",      "--hosts",
                                     "-n",           "--hostfile",    "--exclude",    "--via",
                                     "--ssh-args",   "--mpirun-args", "--nnodes",     "--node-rank",
                                     "--rendezvous", "--key-file",    "--agent-path", "--inside"};

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::string name_of(const PreparedJob& job) {
  if (!job.request.job_name.empty()) return job.request.job_name;
  if (job.plan) return job.plan->job.name;
  return std::filesystem::path(job.command.front()).filename().string();
}

}  // namespace

std::vector<std::string> words_of(const SaidOption& option) {
  std::vector<std::string> words;
  for (const std::string& value : option.values) {
    if (option.is_flag) {
      words.push_back(value == "true" ? option.name : option.name + "=" + value);
      continue;
    }
    words.push_back(option.name);
    const std::string variable = value.substr(0, value.find('='));
    words.push_back(option.name == "--env" && environment::looks_secret(variable) ? variable
                                                                                  : value);
  }
  return words;
}

JobShape shape_of(const PreparedJob& job) {
  JobShape shape;
  shape.name = name_of(job);
  if (!job.hosts.empty()) {
    shape.hosts = static_cast<int>(job.hosts.size());
    shape.ranks_per_host = job.hosts.front().slots;
    for (const hosts::HostSpec& host : job.hosts) {
      if (host.slots != shape.ranks_per_host)
        throw ConfigError(
            fmt::format("a scheduler gives every host the same number of ranks, but host '{}' has "
                        "{} and host '{}' has {}: give equal numbers",
                        job.hosts.front().name, shape.ranks_per_host, host.name, host.slots));
      if (!host.gpus.empty())
        throw ConfigError(fmt::format(
            "host '{}' has gpu=, but the scheduler chooses the GPUs: leave gpu= out", host.name));
    }
  } else if (job.plan) {
    shape.hosts = static_cast<int>(job.plan->job.cluster.hosts);
    shape.ranks_per_host = static_cast<int>(job.plan->job.cluster.processes_per_host);
  } else {
    shape.ranks_per_host = job.world_size;
  }
  if (job.plan && job.plan->job.cluster.device == DeviceKind::kCuda)
    shape.gpus_per_host = shape.ranks_per_host;
  return shape;
}

std::vector<std::string> passed_on_words(const PreparedJob& job) {
  std::vector<std::string> words;
  for (const SaidOption& option : job.request.said) {
    if (option.name == "--max-restarts" && cluster_restarts(job.request)) continue;
    if (std::find(kNotPassedOn.begin(), kNotPassedOn.end(), option.name) == kNotPassedOn.end())
      append(words, words_of(option));
  }
  if (job.plan) {
    words.push_back(job.request.plan);
  } else {
    words.emplace_back("--");
    append(words, job.request.program);
  }
  return words;
}

}  // namespace smp::request
