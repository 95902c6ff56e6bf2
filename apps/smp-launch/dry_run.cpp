#include "dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checks.h"
#include "reach_hosts.h"
#include "smp/launcher/rank_environment.h"
#include "smp/launcher/rank_list.h"
#include "smp/launcher/run_folder.h"
#include "smp/plan/environment.h"

namespace smp {
namespace {

constexpr const char* kDrawnAtStart = "<drawn at the start>";
constexpr const char* kSecret = "<secret>";
constexpr const char* kOmpThreads = "OMP_NUM_THREADS";  // from the CPUs of a host

struct RankPreview {
  std::vector<std::pair<std::string, std::string>> environment;
  std::optional<Coord> coordinates;
};

RankPreview preview_of(const PreparedJob& job, const RankPlace& place, int rank) {
  JobEnvironment shared;
  shared.world_size = job.world_size;
  shared.hosts = std::max<int>(1, static_cast<int>(job.hosts.size()));
  shared.job_id = kDrawnAtStart;
  shared.job_key = kSecret;
  std::string error_file;
  if (!job.run_dir.empty()) {
    const RunFolder folder(job.run_dir);
    shared.run_dir = folder.path();
    if (job.plan) shared.plan = folder.plan();
    error_file = folder.files_of(rank).error_file;
  }
  RankPreview preview;
  std::vector<std::string> variables =
      variables_of_rank(shared, place, rank, error_file, own_environment());
  if (job.request.comm_timeout)
    variables.push_back(comm_timeout_variable(*job.request.comm_timeout));
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool drawn = name == env::kMasterPort ||
                       (!job.hosts.empty() && (name == env::kMasterAddr || name == kOmpThreads));
    preview.environment.emplace_back(name, drawn ? kDrawnAtStart : variable.substr(equals + 1));
  }
  if (job.plan)
    preview.coordinates =
        Mesh(job.plan->degrees, job.plan->job.parallel.placement_strategy).coord_of(rank);
  return preview;
}

// As a shell would read it.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text;
  text.push_back('\'');
  for (char c : word) {
    if (c == '\'') text.append("'\\'");
    text.push_back(c);
  }
  text.push_back('\'');
  return text;
}

std::string command_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    if (!text.empty()) text.push_back(' ');
    text.append(quoted(word));
  }
  return text;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

std::string text_of_variables(const Variables& variables) {
  std::string text = " ";
  for (const auto& [name, value] : variables) text += fmt::format(" {}={}", name, quoted(value));
  return text + "\n";
}

const std::string& host_of(const PreparedJob& job, const RankPlace& place) {
  return job.hosts[static_cast<size_t>(place.host)].name;
}

// What all ranks share is said once.
std::string text_of_ranks(const PreparedJob& job) {
  const std::vector<RankPlace> places = planned_places(job);
  std::vector<RankPreview> previews;
  for (int rank = 0; rank < job.world_size; ++rank)
    previews.push_back(preview_of(job, places[static_cast<size_t>(rank)], rank));
  Variables shared;
  for (const auto& variable : previews.front().environment) {
    const auto has_it = [&](const RankPreview& preview) {
      const Variables& all = preview.environment;
      return std::find(all.begin(), all.end(), variable) != all.end();
    };
    if (job.world_size > 1 && std::all_of(previews.begin(), previews.end(), has_it))
      shared.push_back(variable);
  }
  std::string text = "every rank\n";
  if (!shared.empty()) text += text_of_variables(shared);
  text += fmt::format("  {}\n", command_text(job.command));
  for (int rank = 0; rank < job.world_size; ++rank) {
    text += fmt::format("rank {}", rank);
    if (!job.hosts.empty())
      text += fmt::format(" on host {}", host_of(job, places[static_cast<size_t>(rank)]));
    if (previews[rank].coordinates) {
      const Coord& at = *previews[rank].coordinates;
      text += fmt::format(": pipeline {}, tensor {}, shard {}, replica {}", at.pipeline, at.tensor,
                          at.shard, at.replica);
    }
    Variables own;
    for (const auto& variable : previews[rank].environment) {
      if (std::find(shared.begin(), shared.end(), variable) == shared.end())
        own.push_back(variable);
    }
    text.push_back('\n');
    text += text_of_variables(own);
  }
  return text;
}

std::string as_text(const PreparedJob& job, const std::vector<Check>& checks, size_t failures) {
  std::string text;
  for (const Check& check : checks) {
    std::string lines = check.text;
    for (size_t at = lines.find('\n'); at != lines.npos; at = lines.find('\n', at + 1))
      lines.insert(at + 1, std::string(17, ' '));
    text += fmt::format("{}  {:<11}  {}\n", check.ok ? "ok" : "NO", check.name, lines);
  }
  text += "\n" + text_of_ranks(job);
  if (failures == 0) return text + "\nall checks hold; nothing was started\n";
  return text +
         fmt::format("\n{} of {} checks failed; nothing was started\n", failures, checks.size());
}

std::string as_json(const PreparedJob& job, const std::vector<Check>& checks, bool ok) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["ok"] = ok;
  json["checks"] = Json::array();
  for (const Check& check : checks)
    json["checks"].push_back({{"name", check.name}, {"ok", check.ok}, {"text", check.text}});
  json["ranks"] = Json::array();
  const std::vector<RankPlace> places = planned_places(job);
  for (int rank = 0; rank < job.world_size; ++rank) {
    const RankPlace& place = places[static_cast<size_t>(rank)];
    const RankPreview preview = preview_of(job, place, rank);
    Json one;
    one["rank"] = rank;
    if (!job.hosts.empty()) one["host"] = host_of(job, place);
    if (preview.coordinates) {
      const Coord& at = *preview.coordinates;
      one["coordinates"] = {{"pipeline", at.pipeline},
                            {"tensor", at.tensor},
                            {"shard", at.shard},
                            {"replica", at.replica}};
    }
    one["environment"] = Json::object();
    for (const auto& [name, value] : preview.environment) one["environment"][name] = value;
    one["command"] = job.command;
    json["ranks"].push_back(one);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

DryRunResult dry_run(const PreparedJob& job) {
  parse_rank_list(job.request.shown_ranks, job.world_size);
  const std::vector<Check> checks = checks_of(job);
  size_t failures = 0;
  for (const Check& check : checks) failures += check.ok ? 0 : 1;
  DryRunResult result;
  result.ok = failures == 0;
  result.text = job.request.dry_run == DryRun::kJson ? as_json(job, checks, result.ok)
                                                     : as_text(job, checks, failures);
  return result;
}

}  // namespace smp
