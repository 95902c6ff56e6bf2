#include "smp/launcher/launch/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/request/rank_preview.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::launch {
namespace {

std::string text_of_variables(const request::Variables& variables) {
  std::vector<std::string> words;
  for (const auto& [name, value] : variables)
    words.push_back(fmt::format("{}={}", name, hosts::quoted_for_shell(value)));
  return fmt::format("  {}\n", fmt::join(words, " "));
}

const std::string& host_of(const request::PreparedJob& job, const environment::RankPlace& place) {
  return job.hosts[static_cast<size_t>(place.host)].name;
}

// Variables that all ranks share are printed once.
std::string text_of_ranks(const request::PreparedJob& job) {
  const std::vector<request::RankPreview> previews = previews_with_named(job);
  const request::Variables shared = shared_variables(previews);
  std::string text = "every rank\n";
  if (!shared.empty()) text += text_of_variables(shared);
  text += fmt::format("  {}\n", hosts::command_text(job.command));
  for (size_t rank = 0; rank < previews.size(); ++rank) {
    const request::RankPreview& preview = previews[rank];
    text += fmt::format("rank {}", rank);
    if (!job.hosts.empty()) text += fmt::format(" on host {}", host_of(job, preview.place));
    if (preview.coordinates) {
      const mesh::Coord& at = *preview.coordinates;
      text += fmt::format(": pipeline {}, tensor {}, shard {}, replica {}", at.pipeline, at.tensor,
                          at.shard, at.replica);
    }
    text.push_back('\n');
    text += text_of_variables(own_variables(preview, shared));
  }
  return text;
}

std::string text_of_checks(const std::vector<Check>& checks, size_t failures) {
  std::string text;
  size_t skipped = 0;
  for (const Check& check : checks) {
    std::string lines = check.text;
    for (size_t at = lines.find('\n'); at != lines.npos; at = lines.find('\n', at + 1))
      lines.insert(at + 1, std::string(17, ' '));
    const char* mark = check.skipped ? "--" : check.ok ? "ok" : "NO";
    text += fmt::format("{}  {:<11}  {}\n", mark, check.name, lines);
    skipped += check.skipped ? 1 : 0;
  }
  const std::string end = failures == 0
                              ? fmt::format("all {}checks hold", skipped > 0 ? "other " : "")
                              : fmt::format("{} of {} checks failed", failures, checks.size());
  return fmt::format("{}{}; nothing was started\n", text, end);
}

std::string as_json(const request::PreparedJob& job, const std::vector<Check>& checks, bool ok) {
  text::OrderedJson json;
  json["ok"] = ok;
  json["checks"] = text::OrderedJson::array();
  for (const Check& check : checks)
    json["checks"].push_back({{"name", check.name}, {"ok", check.ok}, {"text", check.text}});
  json["ranks"] = text::OrderedJson::array();
  int rank = 0;
  for (const request::RankPreview& preview : previews_with_named(job)) {
    text::OrderedJson one;
    one["rank"] = rank++;
    if (!job.hosts.empty()) one["host"] = host_of(job, preview.place);
    if (preview.coordinates) {
      const mesh::Coord& at = *preview.coordinates;
      one["coordinates"] = {{"pipeline", at.pipeline},
                            {"tensor", at.tensor},
                            {"shard", at.shard},
                            {"replica", at.replica}};
    }
    one["environment"] = text::OrderedJson::object();
    for (const auto& [name, value] : preview.environment) one["environment"][name] = value;
    one["command"] = job.command;
    json["ranks"].push_back(one);
  }
  return json.dump(2, ' ', false, text::OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

DryRunResult dry_run(const request::PreparedJob& job,
                     const std::function<std::vector<Check>()>& checks_of_job) {
  hosts::parse_rank_list(job.request.output.shown_ranks, job.world_size);
  environment::named_variables(environment::own_environment(),
                               job.request.hosts.forward.named);  // that are not set
  std::vector<Check> checks = checks_of_job();
  // Files of a container's image or volumes are not on this machine.
  if (is_manifest(job.request.dry_run))
    std::erase_if(checks, [](const Check& check) { return check.of_this_machine; });
  for (Check& check : checks) {
    const auto& skipped = job.request.skipped;
    if (std::find(skipped.begin(), skipped.end(), check.name) == skipped.end()) continue;
    check = {check.name, true, fmt::format("left out by --skip {}", check.name), false, true};
  }
  size_t failures = 0;
  for (const Check& check : checks) failures += check.ok ? 0 : 1;
  DryRunResult result;
  result.ok = failures == 0;
  const request::DryRun form = job.request.dry_run;
  if (form == request::DryRun::kText || form == request::DryRun::kRanks) {
    if (form == request::DryRun::kRanks) result.text = text_of_ranks(job);
    result.checks = text_of_checks(checks, failures);
  } else if (job.request.dry_run == request::DryRun::kJson) {
    result.text = as_json(job, checks, result.ok);
  } else if (result.ok) {
    result.text = schedulers::written_job(job);
  } else {
    for (const Check& check : checks) {
      if (!check.ok) throw ConfigError(check.text);
    }
  }
  return result;
}

}  // namespace smp::launch
