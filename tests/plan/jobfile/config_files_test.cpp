#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plan/schema_walker.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/parameter_counts.h"

// Every file under configs/: the schema takes it, the reader takes it, and its head says how many
// parameters it has.
namespace smp {
namespace {

namespace fs = std::filesystem;

const jobfile::JobSource kModel = {
    "model.yaml",
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n"};

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

text::Json json_of_text(const std::string& path, const std::string& text) {
  text::Diagnostics diagnostics;
  const text::YamlTree tree =
      text::parse_yaml(text, diagnostics.add_source(path, text), diagnostics);
  diagnostics.raise_if_any();
  return test::json_of(tree.root);
}

std::vector<fs::path> files_of(const char* folder) {
  std::vector<fs::path> files;
  const fs::path root = fs::path(SMP_SOURCE_DIR) / "configs" / folder;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// 7,241,732,096 of "# Mistral 7B v0.1, 7,241,732,096 parameters."; 0 = it says none.
int64_t said_parameters(const std::string& text) {
  const size_t end = text.find(" parameters");
  if (end == std::string::npos) return 0;
  int64_t count = 0, place = 1;
  for (size_t i = end;
       i-- > 0 && (std::isdigit(static_cast<unsigned char>(text[i])) || text[i] == ',');) {
    if (text[i] == ',') continue;
    count += place * (text[i] - '0');
    place *= 10;
  }
  return count;
}

}  // namespace

TEST_CASE("every file under configs is what the schema says, and is read") {
  const auto schema = text::Json::parse(jobfile::job_schema());
  int files = 0;
  for (const char* folder : {"models", "clusters", "jobs"}) {
    for (const fs::path& path : files_of(folder)) {
      CAPTURE(path.string());
      const std::string text = contents(path);
      text::Json value = json_of_text(path.string(), text);
      std::vector<jobfile::JobSource> sources = {{path.string(), text}};
      if (!value.contains("model")) {  // a part of a job, which the rest is put beside
        value.update(json_of_text(kModel.path, kModel.text));
        sources.insert(sources.begin(), kModel);
      }
      CHECK(test::schema_problem(schema, value) == "");
      CHECK_NOTHROW(jobfile::read_job(sources));
      CHECK(text.starts_with("# "));
      ++files;
    }
  }
  CHECK(files >= 30);
}

TEST_CASE("the head of a model file says the published parameters within 0.5 %") {
  int told = 0;
  for (const fs::path& path : files_of("models")) {
    CAPTURE(path.string());
    const int64_t said = said_parameters(contents(path));
    const JobSpec job = jobfile::read_job({jobfile::load_job_source(path.string())});
    REQUIRE(said > 0);
    const double counted = model::parameter_counts(job.model).total();
    CHECK(counted == doctest::Approx(static_cast<double>(said)).epsilon(0.005));
    ++told;
  }
  CHECK(told >= 120);
}

TEST_CASE("the schema refuses what the reader refuses") {
  const auto schema = text::Json::parse(jobfile::job_schema());
  const auto problem = [&](const std::string& more) {
    return test::schema_problem(schema, json_of_text("job.yaml", kModel.text + more));
  };
  CHECK(problem("") == "");
  CHECK(problem("  num_layer: 3\n") == "$.model has the unknown key num_layer");
  CHECK(problem("  head_dim: 0\n") == "$.model.head_dim breaks anyOf");
  CHECK(problem("cluster: {memory_per_process: 40GiB}\n") == "");
  CHECK(problem("cluster: {memory_per_process: 40 GB}\n") ==
        "$.cluster.memory_per_process breaks anyOf");
  CHECK(problem("cluster: {intra_host_points: [{ranks: 8, bytes: 1MiB}]}\n") ==
        "$.cluster.intra_host_points[0] lacks seconds");
  CHECK(problem("parallel: {pipeline: auto}\n") == "");
  CHECK(problem("parallel: {pipeline: 1f1b}\n") == "$.parallel.pipeline breaks anyOf");
  CHECK(problem("training: {optimizer: {beta1: 1}}\n") ==
        "$.training.optimizer.beta1 breaks exclusiveMaximum");
}

}  // namespace smp
