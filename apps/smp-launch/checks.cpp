#include "checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "resume.h"
#include "smp/launcher/agent/file_distribution.h"
#include "smp/launcher/launch/check.h"
#include "smp/launcher/launch/programs.h"
#include "smp/launcher/launch/resume_command.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/image_file.h"
#include "smp/plan/data/token_data.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/planner/search/check_plan.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "smp/tensorfiles/pretrained/tokenizer_files.h"

namespace smp {
namespace {

constexpr double kMiB = 1 << 20;

launch::Check of_this_machine(launch::Check check) {
  check.of_this_machine = true;
  return check;
}

// Named hosts agree with the plan already, by settle_slots().
std::string check_hosts_of_plan(const request::PreparedJob& job) {
  const ClusterSpec& cluster = job.plan->job.cluster;
  const request::DryRun form = job.request.dry_run;
  const bool gives_hosts =
      form == request::DryRun::kSbatch || is_manifest(form);  // the scheduler does
  if (cluster.hosts != 1 && job.hosts.empty() && !gives_hosts)
    throw ConfigError(
        fmt::format("the plan is for {} hosts: name the hosts, as in smp-launch --hosts node[1-{}] "
                    "{}, or plan again with cluster.hosts: 1, as in smp-plan JOB --hosts 1",
                    cluster.hosts, cluster.hosts, job.request.plan));
  const bool as_planned =
      job.hosts.empty() || (static_cast<int64_t>(job.hosts.size()) == cluster.hosts &&
                            std::all_of(job.hosts.begin(), job.hosts.end(), [&](const auto& host) {
                              return host.slots == cluster.processes_per_host;
                            }));
  if (!as_planned) {
    std::vector<int> slots;
    for (const hosts::HostSpec& host : job.hosts) slots.push_back(host.slots);
    return fmt::format(
        "{} host{} with {} ranks; times and traffic are predicted for {} host{} with {}{}",
        slots.size(), slots.size() == 1 ? "" : "s", fmt::join(slots, " + "), cluster.hosts,
        cluster.hosts == 1 ? "" : "s", cluster.processes_per_host,
        cluster.hosts == 1 ? "" : " each");
  }
  return fmt::format("{} host{}, {} processes{}", cluster.hosts, cluster.hosts == 1 ? "" : "s",
                     cluster.processes_per_host, cluster.hosts == 1 ? "" : " each");
}

// The host of each rank: by the slots of the named hosts, else by the plan.
std::vector<int64_t> hosts_of_ranks(const request::PreparedJob& job) {
  std::vector<int64_t> host_of;
  for (size_t host = 0; host < job.hosts.size(); ++host)
    host_of.insert(host_of.end(), static_cast<size_t>(job.hosts[host].slots),
                   static_cast<int64_t>(host));
  for (int64_t rank = 0; job.hosts.empty() && rank < job.plan->degrees.world(); ++rank)
    host_of.push_back(rank / job.plan->job.cluster.processes_per_host);
  return host_of;
}

// Tensor ranks wait for each other in every layer: the plan prices that by the links inside a host.
std::string check_placement(const request::PreparedJob& job) {
  const Plan& plan = *job.plan;
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  const std::vector<int64_t> host_of = hosts_of_ranks(job);
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    for (const int64_t peer : mesh.group(rank, mesh::Axis::kTensor)) {
      if (host_of[static_cast<size_t>(peer)] == host_of[static_cast<size_t>(rank)]) continue;
      if (job.request.tensor_across_hosts) return "tensor groups have ranks on several hosts";
      throw ConfigError(fmt::format(
          "ranks {} and {} of one tensor group are on different hosts ({} and {}): plan with "
          "placement_strategy: cluster, or allow such groups with --tensor-across-hosts",
          rank, peer, host_of[static_cast<size_t>(rank)], host_of[static_cast<size_t>(peer)]));
    }
  }
  return "every tensor group is on one host";
}

// The planner knows more than the engine: a plan for a cluster need not be executable yet.
std::string check_engine(const Plan& plan) {
  const std::vector<std::string> missing = rules::what_engine_cannot_run(plan);
  if (!missing.empty())
    throw ConfigError(
        fmt::format("this version cannot run the plan:\n{}", fmt::join(missing, "\n")));
  return "runs everything that the plan asks for";
}

std::string check_steps(const Plan& plan) {
  if (plan.job.training.steps == 0)
    throw ConfigError(
        "training.steps is 0, which is for planning only: set training.steps, as in smp-plan JOB "
        "--set training.steps=1000");
  return fmt::format("{}", plan.job.training.steps);
}

// Degrees, batch, memory and schedule, by the planner's own rules.
std::string check_proof(const Plan& plan) {
  const std::vector<std::string> problems = search::check(plan);
  if (!problems.empty()) throw ConfigError(fmt::format("{}", fmt::join(problems, "\n")));
  const schedule::Schedule schedule = schedule::make_schedule(layout::schedule_parameters(plan));
  size_t actions = 0;
  for (const auto& stage : schedule.actions) actions += stage.size();
  return fmt::format(
      "degrees, batch, memory; {} actions on {} stage{}: all sends matched, no deadlock, memory "
      "bounds kept",
      actions, schedule.stages, schedule.stages == 1 ? "" : "s");
}

std::string degrees_text(const Plan& plan) {
  const mesh::Degrees& degrees = plan.degrees;
  return fmt::format("pipeline {} x tensor {} x data {} (shard {} x replica {}) = {} ranks",
                     degrees.pipeline, degrees.tensor, degrees.data(), degrees.shard,
                     degrees.replica, degrees.world());
}

std::string batch_text(const Plan& plan) {
  const TrainingSpec& training = plan.job.training;
  return fmt::format(
      "micro batch {} x microbatches {} x data {} = {} samples x sequence {} = {} tokens",
      training.micro_batch.value_or(0), training.microbatches.value_or(0), plan.degrees.data(),
      training.global_batch.value_or(0), training.sequence_length,
      plan.predictions.tokens_per_step);
}

std::string memory_text(const Plan& plan) {
  const auto& ranks = plan.predictions.ranks;
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  if (most == ranks.end()) return "the plan has no prediction";
  const std::string predicted =
      fmt::format("at most {:.1f} MiB (stage {}, tensor {})",
                  static_cast<double>(most->peak_bytes) / kMiB, most->stage, most->tensor);
  const int64_t limit = plan.job.cluster.memory_per_process_bytes;
  if (limit == 0) return predicted + "; no limit is given";
  return fmt::format("{} of {:.1f} MiB a process", predicted, static_cast<double>(limit) / kMiB);
}

std::string check_data(const Plan& plan) {
  if (model::is_list(plan.job.model)) {
    const data::ImageFile file = data::read_image_file(plan.job);
    return fmt::format("{} images in {}, {} held out", file.images(), file.path,
                       file.images() - file.trained);
  }
  return data::TokenData(plan.job).description();
}

// The config and the names, shapes and types of all tensors; not their bytes.
std::string check_start(const Plan& plan) {
  const std::string& folder = plan.job.training.init_from;
  try {
    const pretrained::HuggingFaceWeights weights(folder, plan.job.model);
  } catch (const safetensors::SafetensorsError& error) {
    throw ConfigError(error.what());
  }
  return folder + ": weights of this model";
}

// Empty if the data cannot be opened, which the check of the data reports.
std::vector<data::TokenManifest> manifests_of(const Plan& plan) {
  try {
    return data::TokenData(plan.job).manifests();
  } catch (const std::exception&) {
    return {};
  }
}

std::string check_tokenizer_of(const Plan& plan) {
  pretrained::check_tokenizer(plan.job, manifests_of(plan));
  return plan.job.training.tokenizer + ": a tokenizer, saved with the weights";
}

std::string check_run_folder(const std::string& path, bool goes_on_if_any) {
  const std::string why =
      goes_on_if_any ? run::RunFolder::why_not_go_on(path) : run::RunFolder::why_not(path);
  if (!why.empty()) throw ConfigError(why);
  return path;
}

std::string check_resume(const request::PreparedJob& job) {
  const std::string& path = job.run_dir;
  if (const std::string why = run::RunFolder::why_not_reopen(path); !why.empty())
    throw ConfigError(why);
  const ResumePoint point = resume_point(job);
  return point.is_complete ? launch::complete_text(job)
                           : fmt::format("{}: resume after step {}", path, point.step);
}

std::string check_push(const std::vector<std::string>& paths) {
  const size_t files = agent::files_to_send(paths).size();
  return fmt::format("{} file{} for every host", files, files == 1 ? "" : "s");
}

std::string binding_text(local::Binding binding) {
  return fmt::format("each rank on {}, which its host chooses at the start",
                     binding == local::Binding::kNuma  ? "the CPUs of one memory node"
                     : binding == local::Binding::kNic ? "the CPUs next to its network card"
                                                       : "its own cores");
}

}  // namespace

std::vector<launch::Check> checks_of(const request::PreparedJob& job) {
  std::vector<launch::Check> checks;
  if (job.plan) {
    const Plan& plan = *job.plan;
    checks.push_back(
        launch::run_check("plan", [&] { return job.request.plan + ", unchanged since written"; }));
    checks.push_back(launch::run_check("hosts", [&] { return check_hosts_of_plan(job); }));
    if ((plan.job.cluster.hosts > 1 || job.hosts.size() > 1) && plan.degrees.tensor > 1)
      checks.push_back(launch::run_check("placement", [&] { return check_placement(job); }));
    checks.push_back({"degrees", true, degrees_text(plan)});
    checks.push_back({"batch", true, batch_text(plan)});
    checks.push_back({"memory", true, memory_text(plan)});
    checks.push_back(launch::run_check("engine", [&] { return check_engine(plan); }));
    checks.push_back(launch::run_check("steps", [&] { return check_steps(plan); }));
    checks.push_back(launch::run_check("proof", [&] { return check_proof(plan); }));
    checks.push_back(of_this_machine(launch::run_check("data", [&] { return check_data(plan); })));
    if (!plan.job.training.init_from.empty())
      checks.push_back(
          of_this_machine(launch::run_check("start", [&] { return check_start(plan); })));
    if (!plan.job.training.tokenizer.empty())
      checks.push_back(of_this_machine(
          launch::run_check("tokenizer", [&] { return check_tokenizer_of(plan); })));
    checks.push_back(of_this_machine(
        launch::run_check("worker", [&] { return launch::find_worker(job.command.front()); })));
  } else {
    checks.push_back(of_this_machine(
        launch::run_check("program", [&] { return launch::find_program(job.command.front()); })));
  }
  for (const std::string& note : job.request.hosts.notes) checks.push_back({"hosts", true, note});
  if (!job.host_order.empty()) checks.push_back({"order", true, job.host_order});
  if (!job.request.hosts.push.empty())
    checks.push_back(of_this_machine(
        launch::run_check("pushed", [&] { return check_push(job.request.hosts.push); })));
  if (job.request.binding != local::Binding::kNone)
    checks.push_back({"binding", true, binding_text(job.request.binding)});
  if (!job.run_dir.empty())
    checks.push_back(of_this_machine(launch::run_check("run folder", [&] {
      return job.request.resume.empty() ? check_run_folder(job.run_dir, job.goes_on_if_any)
                                        : check_resume(job);
    })));
  return checks;
}

void PlannerChecks::require(const request::PreparedJob& job) const {
  for (const launch::Check& check : checks_of(job)) {
    if (!check.ok) throw ConfigError(check.text);
  }
}

bool PlannerChecks::is_complete(const request::PreparedJob& job) const {
  return resume_point(job).is_complete;
}

}  // namespace smp
