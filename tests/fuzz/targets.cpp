#include <cmath>

#include "fuzz/target.h"
#include "host_targets.h"
#include "planfile/plan_format.h"
#include "published/csv_reader.h"
#include "shell/shell_script.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/forbid.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/runinfo/product_times.h"
#include "smp/plan/runinfo/trace_file.h"
#include "smp/plan/spec/plan.h"
#include "smp/plan/text/json_tree.h"
#include "smp/planner/calibration/host_rates.h"
#include "smp/planner/calibration/nccl_tests.h"
#include "smp/planner/choice/legality.h"
#include "smp/planner/published/score.h"
#include "smp/planner/runs/run_report.h"
#include "smp/planner/search/check_plan.h"
#include "smp/planner/search/search.h"
#include "tensor_file_targets.h"
#include "token_file_targets.h"

namespace smp::fuzz {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw PropertyBroken{what};
}

// What was read is written, and reads back as the same.
void read_a_job(const std::string& text) {
  const JobSpec job = jobfile::read_job({{"job.yaml", text}});
  const std::string written = jobfile::write_job_yaml(job);
  JobSpec back;
  try {
    back = jobfile::read_job({{"job.yaml", written}});
  } catch (const std::exception& error) {
    throw PropertyBroken{std::string("what was written is not read back: ") + error.what()};
  }
  require(jobfile::write_job_yaml(back) == written,
          "a job changes when it is written and read again");
  const double parameters = model::parameter_counts(job.model).total();
  require(parameters > 0 && parameters <= model::kMostParameters, "parameters out of range");
  choice::require_legal_pins(job);
}

// Small jobs are planned: what is chosen is a plan that proves itself, and comes back from its
// file.
void plan_a_job(const std::string& text) {
  const JobSpec job = jobfile::read_job({{"job.yaml", text}});
  constexpr int64_t kFewRanks = 32;
  if (job.cluster.hosts * job.cluster.processes_per_host > kFewRanks) return;
  if (model::block_count(job.model) > kFewRanks) return;
  const search::SearchResult result = search::plan_job(job);
  const Plan* plan = std::get_if<Plan>(&result.best);
  if (plan == nullptr) return;
  const std::string written = planfile::write_plan(*plan);
  try {
    const Plan back = planfile::parse_plan("plan.yaml", written);
    require(planfile::write_plan(back) == written,
            "a plan changes when it is written and read again");
    for (const std::string& line : search::check(back)) {
      throw PropertyBroken{"the chosen plan is not proved: " + line};
    }
  } catch (const ConfigError& error) {
    throw PropertyBroken{std::string("the chosen plan is not read: ") + error.what()};
  }
}

// The first line is an override, the rest a job.
void read_an_override(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string job =
      "model: {num_layers: 4, hidden_size: 128, num_heads: 4, vocab_size: 256}\n";
  jobfile::read_job({{"job.yaml", end == std::string::npos ? job : text.substr(end + 1)}},
                    {text.substr(0, end)});
}

void read_forbidden(const std::string& text) {
  const jobfile::ForbidReading reading = jobfile::read_forbid(text);
  require(reading.problem.empty() != reading.comparisons.empty() || !reading.problem.empty(),
          "neither comparisons nor a problem");
  for (const jobfile::ForbiddenValue& one : reading.comparisons) {
    require(!one.values.empty(), "a comparison without a value");
  }
}

// With a header that fits, so that the changes reach what lies behind it.
void read_a_plan(const std::string& text) {
  const size_t at = text.find("job:\n");
  const std::string body = at == std::string::npos ? text : text.substr(at);
  const std::string sealed = "smp_plan: " + std::to_string(kPlanFormatVersion) +
                             "\nbody_bytes: " + std::to_string(body.size()) +
                             "\nbody_hash: " + planfile::plan_hash(body) + "\n" + body;
  const Plan plan = planfile::parse_plan("plan.yaml", sealed);
  const std::string written = planfile::write_plan(plan);
  require(planfile::write_plan(planfile::parse_plan("plan.yaml", written)) == written,
          "a plan changes when it is written and read again");
  planfile::parse_plan("plan.yaml", text);  // the header too
}

void read_json(const std::string& text) {
  text::Diagnostics diagnostics;
  const text::YamlTree tree =
      text::parse_json(text, diagnostics.add_source("x.json", text), diagnostics);
  require(tree.complete || diagnostics.any(), "a broken document without an error");
  diagnostics.raise_if_any();
}

void read_csv(const std::string& text) {
  const published::CsvTable table = published::parse_csv("runs.csv", text);
  for (const published::CsvRow& row : table.rows) {
    require(row.cells.size() == table.columns.size(), "a row with more or fewer cells");
  }
}

// Rows that are read are predicted, in numbers.
void score_a_table(const std::string& text) {
  for (const published::RowScore& row :
       published::score_table("runs.csv", text, std::nullopt).rows) {
    if (!row.expressible) {
      require(!row.reason.empty(), "a row is not expressible, without a reason");
      continue;
    }
    require(std::isfinite(row.predicted_peak_gib) && row.predicted_peak_gib >= 0 &&
                std::isfinite(row.predicted_step_s) && row.predicted_step_s >= 0,
            "a prediction that is no number");
  }
}

// The points go into a cluster file, which is read.
void import_links(const std::string& text) {
  const calibration::NcclTable table = calibration::parse_nccl_tests("reduce.txt", text);
  require(!table.points.empty(), "a table without points");
  calibration::with_link_points({"cluster.yaml", "cluster:\n  hosts: 2\n  processes_per_host: 8\n"},
                                {table});
}

// Whoever draws what was read needs slices that end behind their begin.
void read_trace(const std::string& text) {
  for (const runinfo::ReadSlice& slice : runinfo::parse_trace("trace.json", text))
    require(slice.begin_ns <= slice.end_ns, "a slice ends before it begins");
}

// Whatever was measured, no rate is a number that the planner cannot divide by.
void read_host_rates(const std::string& text) {
  const calibration::HostMeasurement measurement = calibration::read_host_measurement(text);
  for (const int64_t processes : {1, 3, 1024}) {
    JobSpec job;
    job.cluster.processes_per_host = processes;
    job.model.hidden_size = 200;
    calibration::set_host_rates(job.cluster, job.model, measurement);
    for (const calibration::HostRate& rate : calibration::host_rates()) {
      const double value = job.cluster.*rate.value;
      require(std::isfinite(value) && value >= 0, "a rate that is no number");
    }
  }
}
// Whatever was measured, one library is so many times as fast as the other.
void read_times_of_products(const std::string& text) {
  const std::vector<runinfo::ProductTimes> times = runinfo::read_product_times(text);
  for (const runinfo::ProductTimes& one : times)
    require(std::isfinite(one.torch_speed()) && one.torch_speed() > 0, "a speed that is no number");
  const std::string lines = runinfo::lines_of(times);
  require(runinfo::lines_of(runinfo::read_product_times(lines)) == lines,
          "times change when they are written and read again");
}
void read_report(const std::string& text) { runs::parse_run_report("report.json", text); }

template <importers::ForeignFormat format>
void import_file(const std::string& text) {
  importers::ImportContext context;
  context.num_layers = 12;
  const std::string job =
      importers::imported_job_yaml({importers::import_source({"foreign", text}, format, context)});
  require(!job.empty(), "an import without a text");
}

// What a script calls its commands with; whatever it says, each word is certain or has a reason.
void read_script(const std::string& text) {
  text::Diagnostics diagnostics;
  const int source = diagnostics.add_source("x.sh", text);
  const shell::ShellScript script = shell::read_shell_script(text, source, diagnostics);
  diagnostics.raise_if_any();
  for (const shell::ShellLine& line : script.lines) {
    for (const shell::ShellWord& word : line.words) {
      require(!word.unknown || !word.unknown->what.empty(), "a doubt without a reason");
      require(word.place.line >= 1 && word.place.column >= 1, "a word without a place");
    }
  }
}

void import_any(const std::string& text) { importers::recognise({"foreign", text}); }

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets = {
      {"job", read_a_job, {"configs", "tests/golden/bad-jobs", "tests/fuzz/corpus/job"}},
      {"search", plan_a_job, {"configs/jobs", "tests/golden/planner", "tests/fuzz/corpus/job"}},
      {"override", read_an_override, {"tests/fuzz/corpus/override"}},
      {"forbid", read_forbidden, {"tests/fuzz/corpus/forbid"}},
      {"plan", read_a_plan, {"tests/fuzz/corpus/plan"}},
      {"json", read_json, {"tests/fuzz/corpus/json", "tests/fuzz/corpus/hf"}},
      {"csv", read_csv, {"tests/fuzz/corpus/csv"}},
      {"score", score_a_table, {"tests/golden/score", "tests/fuzz/corpus/csv"}},
      {"nccl", import_links, {"tests/fuzz/corpus/nccl"}},
      {"host-rates", read_host_rates, {"tests/fuzz/corpus/host-rates"}},
      {"products", read_times_of_products, {"tests/fuzz/corpus/products"}},
      {"report", read_report, {"tests/fuzz/corpus/report"}},
      {"trace", read_trace, {"tests/fuzz/corpus/trace"}},
      {"hf",
       import_file<importers::ForeignFormat::kHuggingFace>,
       {"tests/fuzz/corpus/hf", "tests/golden/interchange/huggingface",
        "tests/golden/interchange/bad"}},
      {"smp-v1",
       import_file<importers::ForeignFormat::kSmpV1>,
       {"tests/fuzz/corpus/smp", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"smp-v2",
       import_file<importers::ForeignFormat::kSmpV2>,
       {"tests/fuzz/corpus/smp", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"deepspeed",
       import_file<importers::ForeignFormat::kDeepSpeed>,
       {"tests/fuzz/corpus/deepspeed", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"megatron",
       import_file<importers::ForeignFormat::kMegatron>,
       {"tests/fuzz/corpus/megatron", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"shell",
       read_script,
       {"tests/fuzz/corpus/shell", "tests/fuzz/corpus/megatron", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"accelerate",
       import_file<importers::ForeignFormat::kAccelerate>,
       {"tests/fuzz/corpus/accelerate", "tests/golden/interchange/import",
        "tests/golden/interchange/bad"}},
      {"sagemaker",
       import_file<importers::ForeignFormat::kSageMaker>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"nemo",
       import_file<importers::ForeignFormat::kNemo>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"torchtitan",
       import_file<importers::ForeignFormat::kTorchTitan>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"llama-factory",
       import_file<importers::ForeignFormat::kLlamaFactory>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"axolotl",
       import_file<importers::ForeignFormat::kAxolotl>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"automodel",
       import_file<importers::ForeignFormat::kAutomodel>,
       {"tests/golden/interchange/import", "tests/golden/interchange/bad"}},
      {"recognise",
       import_any,
       {"tests/fuzz/corpus/hf", "tests/fuzz/corpus/deepspeed", "tests/fuzz/corpus/smp",
        "tests/fuzz/corpus/accelerate", "tests/fuzz/corpus/megatron",
        "tests/golden/interchange/import"}},
      {"safetensors", read_safetensors, {"tests/fuzz/corpus/safetensors"}},
      {"manifest", read_manifest, {"tests/fuzz/corpus/manifest"}},
      {"hf-config", read_hf_config, {"tests/fuzz/corpus/hf-config"}},
      {"hf-index", read_hf_index, {"tests/fuzz/corpus/hf-index"}},
      {"megatron-data", read_megatron_data, {"tests/fuzz/corpus/megatron-data"}},
      {"llmc-data", read_llmc_data, {"tests/fuzz/corpus/llmc-data"}},
      {"npy-data", read_npy_data, {"tests/fuzz/corpus/npy-data"}},
      {"nanogpt-data", read_nanogpt_data, {"tests/fuzz/corpus/nanogpt-data"}},
      {"data-manifest", read_data_manifest, {"tests/fuzz/corpus/data-manifest"}},
      {"data-mask", read_data_mask, {"tests/fuzz/corpus/data-mask"}},
      {"data-labels", read_data_labels, {"tests/fuzz/corpus/data-labels"}},
      {"hosts", read_hosts, {"tests/fuzz/corpus/hosts"}},
      {"hostfile", read_host_file, {"tests/fuzz/corpus/hostfile"}},
      {"status", read_status, {"tests/fuzz/corpus/status"}},
  };
  return kTargets;
}

}  // namespace smp::fuzz
