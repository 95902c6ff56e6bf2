#include <fmt/format.h>

#include <algorithm>

#include "jobfile/field_table.h"
#include "jobfile/job_builder.h"
#include "planfile/plan_format.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/number_text.h"
#include "text/strict_map.h"

namespace smp::planfile {
namespace {

// Room for thousands of (stage, tensor) ranks with their terms.
constexpr text::YamlLimits kPlanLimits{.bytes = 64 << 20};

// One line of the header, after its key.
struct HeaderLine {
  std::string_view value;
  text::Place place;
};

// Takes apart the lines before the body. They are read as text, before any YAML, because a cut file
// is no YAML.
class Header {
 public:
  Header(std::string_view text, int source, text::Diagnostics& diagnostics)
      : rest_(text), source_(source), diagnostics_(diagnostics) {
    while (rest_.starts_with('#')) next_line();
  }

  // The value of the next line, which must have this key; otherwise a report that ends the reading.
  HeaderLine take(std::string_view key) {
    const text::Place place{source_, line_, 1};
    const std::string_view line = next_line();
    if (!line.starts_with(key) || !line.substr(key.size()).starts_with(": ")) {
      fail(place,
           fmt::format("expected the line '{}: ...' of a plan: write the plan with smp-plan", key));
    }
    const size_t begin = key.size() + 2;
    return {line.substr(begin), {source_, place.line, static_cast<int>(begin) + 1}};
  }

  std::string_view body() const { return rest_; }

  [[noreturn]] void fail(text::Place place, std::string message) {
    diagnostics_.error(place, std::move(message));
    throw ConfigError(diagnostics_.text());
  }

 private:
  std::string_view next_line() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    return line;
  }

  std::string_view rest_;
  int source_;
  text::Diagnostics& diagnostics_;
  int line_ = 1;
};

bool has_line_with_key(std::string_view text, std::string_view key) {
  const std::string start = std::string(key) + ":";
  return text.starts_with(start) || text.find("\n" + start) != std::string_view::npos;
}

bool looks_like_a_job(std::string_view text) {
  const auto& sections = jobfile::job_sections();
  return std::any_of(sections.begin(), sections.end(), [&](const jobfile::Section& section) {
    return !section.path.empty() && has_line_with_key(text, section.path);
  });
}

void check_header(const std::string& path, std::string_view text, int source,
                  text::Diagnostics& diagnostics) {
  if (text.empty()) throw ConfigError(path + ": this plan is empty; write it again with smp-plan");
  if (!has_line_with_key(text, kVersionKey)) {
    throw ConfigError(path +
                      (looks_like_a_job(text)
                           ? ": this is a job file: run smp-plan " + path + " -o plan.yaml first"
                           : ": not a plan: the file has no line 'smp_plan: " +
                                 std::to_string(kPlanFormatVersion) + "'"));
  }
  Header header(text, source, diagnostics);
  const HeaderLine version = header.take(kVersionKey);
  if (version.value != std::to_string(kPlanFormatVersion)) {
    header.fail(version.place,
                fmt::format("the plan has format version {}, this program reads version {}: write "
                            "it again with the smp-plan beside this program",
                            version.value, kPlanFormatVersion));
  }
  const HeaderLine bytes = header.take(kBytesKey);
  const HeaderLine hash = header.take(kHashKey);
  const std::string_view body = header.body();
  if (const auto expected = text::strict_whole(bytes.value, text::Scale::kNone);
      expected && static_cast<text::Int128>(body.size()) < *expected) {
    header.fail(
        bytes.place,
        fmt::format(
            "the plan is cut off after {} of {} bytes of its body; write it again with smp-plan",
            body.size(), bytes.value));
  }
  if (hash.value != plan_hash(body)) {
    header.fail(hash.place,
                fmt::format("the plan was edited after smp-plan wrote it (its hash is now {}): "
                            "change the job and plan again, or use smp-plan --set",
                            plan_hash(body)));
  }
}

// Like StrictMap::text, but "" may stand.
std::string text_or_empty(text::StrictMap& map, std::string_view key) {
  const text::YamlNode* node = map.has(key) ? map.node(key) : nullptr;
  if (node && node->kind == text::YamlNode::Kind::kScalar && node->quoted && node->text.empty())
    return "";
  return map.text(key);
}

MemoryTerm read_term(text::StrictMap map) {
  static const std::vector<std::string> kCategories = [] {
    std::vector<std::string> names;
    for (int i = 0; i < kMemoryCategories; ++i) {
      names.emplace_back(name_of(static_cast<MemoryCategory>(i)));
    }
    return names;
  }();
  MemoryTerm term;
  term.name = text_or_empty(map, "name");
  term.category = static_cast<MemoryCategory>(map.choice("category", kCategories));
  term.bytes = map.integer("bytes");
  term.formula = text_or_empty(map, "formula");
  term.source = text_or_empty(map, "source");
  map.finish();
  return term;
}

RankPrediction read_rank(text::StrictMap map) {
  RankPrediction rank;
  rank.stage = map.integer("stage");
  rank.tensor = map.integer("tensor");
  rank.peak_bytes = map.integer("peak_bytes");
  rank.peak_phase = text_or_empty(map, "peak_phase");
  if (map.has("host_bytes")) rank.host_bytes = map.integer("host_bytes");
  rank.busy_ns = map.integer("busy_ns");
  for (text::StrictMap& term : map.maps("terms")) rank.terms.push_back(read_term(std::move(term)));
  map.finish();
  return rank;
}

Predictions read_predictions(text::StrictMap map) {
  Predictions predictions;
  predictions.step_ns = map.integer("step_ns");
  predictions.tokens_per_step = map.integer("tokens_per_step");
  predictions.bubble_ppm = map.integer("bubble_ppm");
  for (text::StrictMap& rank : map.maps("ranks"))
    predictions.ranks.push_back(read_rank(std::move(rank)));
  map.finish();
  return predictions;
}

mesh::Degrees read_degrees(text::StrictMap map) {
  mesh::Degrees degrees;
  degrees.pipeline = map.integer("pipeline", 1);
  degrees.tensor = map.integer("tensor", 1);
  degrees.shard = map.integer("shard", 1);
  degrees.replica = map.integer("replica", 1);
  degrees.context = map.integer("context", 1);
  degrees.exchange = map.integer("exchange", 1);
  degrees.expert = map.integer("expert", 1);
  degrees.expert_tensor = map.integer("expert_tensor", 1);
  map.finish();
  return degrees;
}

void check_degrees(const Plan& plan, text::StrictMap& root) {
  try {
    if (rules::degrees_of(plan.job) == plan.degrees) return;
    root.error("degrees",
               "the degrees do not match cluster and parallel of the job; write the plan again "
               "with smp-plan");
  } catch (const ConfigError& error) {
    root.error("job", error.what());
  }
}

}  // namespace

Plan parse_plan(const std::string& path, const std::string& text) {
  text::Diagnostics diagnostics;
  const int source = diagnostics.add_source(path, text);
  check_header(path, text, source, diagnostics);
  const text::YamlTree tree = text::parse_yaml(text, source, diagnostics, kPlanLimits);
  diagnostics.raise_if_any();

  text::StrictMap root(tree.root, "a plan", diagnostics);
  for (const std::string_view key : {kVersionKey, kBytesKey, kHashKey}) root.node(key);
  Plan plan;
  jobfile::JobBuilder job(diagnostics, jobfile::JobBuilder::FrameworkFile::kLeave);
  const text::YamlNode* job_node = root.node("job");
  if (job_node) job.add(*job_node, tree.complete);
  plan.degrees = read_degrees(root.map("degrees"));
  plan.reasons = root.texts("reasons");
  plan.predictions = read_predictions(root.map("predictions"));
  root.finish();
  diagnostics.raise_if_any();

  plan.job = job.finish("job");
  diagnostics.raise_if_any();
  for (const std::string& key : open_keys(plan.job)) {
    diagnostics.error(root.place("job"),
                      key + " is auto, but a plan must have a value; write it again with smp-plan");
  }
  diagnostics.raise_if_any();
  check_degrees(plan, root);
  diagnostics.raise_if_any();
  return plan;
}

Plan read_plan(const std::string& path) {
  return parse_plan(path, files::read_text_file(path, "plan file"));
}

}  // namespace smp::planfile
