
#include "smp/launcher/supervision/report.h"
#include "smp/plan/text/json.h"

// The report as JSON.
namespace smp::supervision {
namespace {

const char* name_of(job::JobEnd end) {
  constexpr const char* kEnds[] = {"success",        "rank_failed",  "timeout", "interrupted",
                                   "launcher_error", "checkpointed", "hang",    "launcher_error"};
  return kEnds[static_cast<int>(end)];
}

text::OrderedJson end_json(const process::ProcessEnd& end) {
  text::OrderedJson json;
  if (end.signal != 0) {
    json["signal"] = process::signal_name(end.signal);
    json["dumped_core"] = end.dumped_core;
    json["out_of_memory"] = end.out_of_memory;
    if (end.memory_limit_bytes != 0) json["memory_limit_bytes"] = end.memory_limit_bytes;
  } else {
    json["exit_code"] = end.exit_code;
  }
  if (end.pid != 0) json["pid"] = end.pid;
  json["cpu_s"] = static_cast<double>(end.cpu_ms) / 1000;
  json["peak_memory_bytes"] = end.peak_memory_bytes;
  return json;
}

// "rank", "host", "local_rank"
text::OrderedJson place_json(const job::LaunchJob& job, const std::vector<int>& local_ranks,
                             int rank) {
  text::OrderedJson json;
  json["rank"] = rank;
  if (!job.hosts.empty()) json["host"] = job.hosts[job.host_of_rank[rank]];
  json["local_rank"] = local_ranks[static_cast<size_t>(rank)];
  return json;
}

text::OrderedJson cause_json(const job::LaunchJob& job, const job::JobResult& result,
                             text::OrderedJson place) {
  const int rank = result.cause->rank;
  place["text"] = cause_line(job, result);
  place["alive"] = result.cause->alive;
  place["log"] = job.files[rank].err_log;
  place["last_lines"] = result.last_lines;
  place["gpu_errors"] = result.ranks[rank].end.gpu_errors;
  return place;
}

text::OrderedJson hang_json(const job::Hang& hang) {
  text::OrderedJson places = text::OrderedJson::array();
  for (const job::Hang::Place& place : hang.places)
    places.push_back({{"ranks", place.ranks}, {"where", place.where}});
  return {{"silent_ms", hang.silent.count()}, {"behind", hang.behind}, {"places", places}};
}

text::OrderedJson start_json(const Start& start, size_t number) {
  text::OrderedJson json = {{"start", number},
                            {"from", start.from},
                            {"end", name_of(start.end)},
                            {"exit_code", start.exit_code},
                            {"elapsed_ms", start.elapsed.count()},
                            {"cause", start.cause}};
  if (start.failed_step) json["step"] = *start.failed_step;
  return json;
}

text::OrderedJson rank_json(const job::RankState& state, text::OrderedJson place) {
  if (!state.lost.empty()) place["lost"] = state.lost;
  if (state.ended && state.lost.empty()) place.update(end_json(state.end));
  place["ended_by_launcher"] = state.ended_by_launcher;
  place["after_ms"] = state.after.count();
  if (state.error)
    place["error"] = {{"culprit", state.error->culprit},
                      {"phase", state.error->phase},
                      {"message", state.error->message}};
  if (state.progress)
    place["progress"] = {{"step", state.progress->step},
                         {"phase", state.progress->phase},
                         {"collectives", state.progress->collectives},
                         {"steps_done", state.progress->steps_done}};
  return place;
}

}  // namespace

std::string report_json(const job::LaunchJob& job, const job::JobResult& result,
                        const std::vector<Start>& starts) {
  const std::vector<int> local_ranks = job::local_ranks_of(job);
  text::OrderedJson json;
  json["job_id"] = job.id;
  json["end"] = name_of(result.end);
  json["exit_code"] = result.exit_code;
  json["elapsed_ms"] = result.elapsed.count();
  json["ending_ms"] = result.ending.count();
  json["left_behind"] = result.left_behind;
  if (!result.launcher_error.empty()) json["launcher_error"] = result.launcher_error;
  if (result.interrupted_by != 0)
    json["interrupted_by"] = process::signal_name(result.interrupted_by);
  if (result.cause)
    json["cause"] = cause_json(job, result, place_json(job, local_ranks, result.cause->rank));
  if (result.hang) json["hang"] = hang_json(*result.hang);
  for (size_t i = 0; starts.size() > 1 && i < starts.size(); ++i)
    json["starts"].push_back(start_json(starts[i], i + 1));
  json["ranks"] = text::OrderedJson::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank)
    json["ranks"].push_back(
        rank_json(result.ranks[rank], place_json(job, local_ranks, static_cast<int>(rank))));
  return json.dump(2, ' ', false, text::OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace smp::supervision
