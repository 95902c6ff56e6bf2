#include "smp/planner/runs/run_report.h"

#include <fmt/format.h>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"

namespace smp::runs {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  const text::Json& at(const text::Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      throw ConfigError(fmt::format("{}: not the report of a run: '{}' is missing", path_, key));
    }
    return object.at(key);
  }
  double number(const text::Json& object, const char* key) const {
    const text::Json& value = at(object, key);
    if (!value.is_number()) throw ConfigError(fmt::format("{}: '{}' is not a number", path_, key));
    return value.get<double>();
  }
  int64_t count(const text::Json& object, const char* key) const {
    const text::Json& value = at(object, key);
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 0x1p60) {
      throw ConfigError(fmt::format("{}: '{}' is not a whole number", path_, key));
    }
    return value.get<int64_t>();
  }
  std::string text(const text::Json& object, const char* key) const {
    const text::Json& value = at(object, key);
    if (!value.is_string()) throw ConfigError(fmt::format("{}: '{}' is not a text", path_, key));
    return value.get<std::string>();
  }
  const text::Json& list(const text::Json& object, const char* key) const {
    const text::Json& value = at(object, key);
    if (!value.is_array()) throw ConfigError(fmt::format("{}: '{}' is not a list", path_, key));
    return value;
  }

 private:
  const std::string& path_;
};

MeasuredRank rank_of(const Reader& read, const text::Json& json) {
  MeasuredRank rank;
  rank.rank = read.count(json, "rank");
  const text::Json& place = read.at(json, "coordinates");
  rank.stage = read.count(place, "pipeline");
  rank.tensor = read.count(place, "tensor");
  rank.peak_bytes = read.count(json, "measured_peak_bytes");
  rank.peak_phase = read.text(json, "measured_peak_phase");
  const text::Json& categories = read.at(json, "measured_bytes_by_category");
  for (int i = 0; i < kMemoryCategories; ++i) {
    const std::string name(name_of(static_cast<MemoryCategory>(i)));
    rank.by_category[static_cast<size_t>(i)] = read.count(categories, name.c_str());
  }
  for (const text::Json& row : read.list(json, "wire")) {
    rank.wire.push_back({read.text(row, "label"), read.count(row, "measured_calls"),
                         read.count(row, "measured_wire_bytes")});
  }
  return rank;
}

}  // namespace

RunReport parse_run_report(const std::string& path, const std::string& text) {
  if (text.empty()) throw ConfigError(path + ": not valid JSON: the file is empty");
  if (files::kind_of_text(text) == files::FileKind::kPlan) {
    throw ConfigError(path + ": this is a plan; name the report.json in the folder of its run");
  }
  text::Json json;
  try {
    json = text::Json::parse(text);
  } catch (const text::Json::parse_error& error) {
    throw ConfigError(fmt::format("{}: not valid JSON: error at byte {}", path, error.byte));
  } catch (const text::Json::out_of_range&) {
    throw ConfigError(fmt::format("{}: not valid JSON: a number is out of range", path));
  }
  const Reader read(path);
  RunReport report;
  report.path = path;
  const text::Json& plan = read.at(json, "plan");
  report.degrees.pipeline = read.count(plan, "pipeline_parallel_degree");
  report.degrees.tensor = read.count(plan, "tensor_parallel_degree");
  report.degrees.shard = read.count(plan, "sharded_data_parallel_degree");
  report.degrees.replica = read.count(plan, "replica_degree");
  report.steps = read.count(json, "steps");
  report.step_s = read.number(json, "measured_step_s");
  for (const text::Json& rank : read.list(json, "ranks"))
    report.ranks.push_back(rank_of(read, rank));
  if (!(report.step_s > 0) || report.steps == 0 || report.ranks.empty()) {
    throw ConfigError(fmt::format("{}: the run made no step", path));
  }
  return report;
}

RunReport load_run_report(const std::string& path) {
  return parse_run_report(path, files::read_text_file(path, "report.json of a run"));
}

}  // namespace smp::runs
