#include <doctest/doctest.h>

#include <fstream>

#include "program.h"
#include "smp/plan/text/json.h"

// smp-plan check, as CI runs it: lines, exit codes, forms.

using namespace smp;
using text::Json;

namespace {

const std::string kJob = SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml";
constexpr const char* kModel =
    "model: {family: llama, num_layers: 16, hidden_size: 2048, num_heads: 16, num_kv_heads: 8,\n"
    "        ffn_hidden_size: 8192, vocab_size: 50257, max_positions: 4096}\n"
    "cluster: p4d.24xlarge\n"
    "training: {global_batch: 64, micro_batch: 1}\n"
    "parallel: {tensor_parallel_degree: 2, pipeline_parallel_degree: 1}\n";

ProgramEnd check(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {SMP_PLAN, "check"});
  return run_program(arguments);
}

std::string written(const ScratchFolder& folder, const char* name, const std::string& text) {
  std::ofstream(folder / name) << text;
  return folder / name;
}

// The quickstart on ranks with so much memory.
std::string quickstart_with(const ScratchFolder& folder, const std::string& memory) {
  std::string text = read_file(kJob);
  const std::string key = "memory_per_process: ";
  const size_t at = text.find(key) + key.size();
  text.replace(at, text.find('\n', at) - at, memory);
  return written(folder, ("q" + memory + ".yaml").c_str(), text);
}

}  // namespace

TEST_CASE("check prints one line for a job that fits, and for its plan") {
  const ScratchFolder folder;
  const ProgramEnd job = check({kJob});
  CHECK(job.code == 0);
  CHECK(job.err.empty());
  CHECK(job.out.starts_with(kJob + ": fits: 47.0 of 62.0 MiB a rank (fullest: stage 0, backward), "
                                   "step "));
  CHECK(job.out.ends_with(", bound by matmuls\n"));
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan}).code == 0);
  const ProgramEnd of_plan = check({plan});
  CHECK(of_plan.code == 0);
  CHECK(of_plan.out.substr(plan.size()) == job.out.substr(kJob.size()));
}

TEST_CASE("check: tight, no and invalid have codes of their own, of several files the worst") {
  const ScratchFolder folder;
  const std::string tight = quickstart_with(folder, "22500KiB"),
                    no = quickstart_with(folder, "1MiB");
  const std::string invalid = written(folder, "invalid.yaml", "model:\n  num_heads: 0\n");
  const ProgramEnd of_tight = check({tight});
  CHECK(of_tight.code == 5);
  CHECK(of_tight.out.starts_with(tight + ": tight: may exceed its limit: 21."));
  CHECK(contains(of_tight.out, ": warning smp/tight: the run may exceed its limit: "));
  CHECK(check({tight, "--fail-on", "no"}).code == 0);
  const ProgramEnd of_no = check({no});
  CHECK(of_no.code == 4);
  CHECK(of_no.out.starts_with(no + ": no: the closest layout ("));
  CHECK(contains(of_no.out, "; the smallest change that fits: cluster.memory_per_process: "));
  const ProgramEnd of_invalid = check({invalid});
  CHECK(of_invalid.code == 3);
  CHECK(of_invalid.out == invalid +
                              ": invalid: model needs num_layers, hidden_size, vocab_size; "
                              "and 1 more\n" +
                              invalid +
                              ":2:14: error smp/invalid: num_heads must be at least 1, not 0\n");
  CHECK(check({kJob, tight}).code == 5);
  CHECK(check({tight, no, kJob}).code == 4);
  const ProgramEnd all = check({no, invalid, tight});
  CHECK(all.code == 3);
  CHECK(all.out == of_no.out + of_invalid.out + of_tight.out);
  CHECK(check({"/no/such.yaml"}).out == "/no/such.yaml: invalid: no such file\n");
}

TEST_CASE("check: a tight plan for accelerators names allocator retries") {
  const ScratchFolder folder;
  // One layout alone, on accelerators with so much memory.
  const auto job = [&](int64_t bytes) {
    std::string text = kModel;
    text.replace(text.find("cluster: p4d.24xlarge"), 21,
                 "cluster: {name: c, processes_per_host: 8, device: cuda, memory_per_process: " +
                     std::to_string(bytes) + "}");
    text.replace(
        text.find("_degree: 1}"), 11,
        "_degree: 1, sharding: none, recompute: none, "
        "sequence_parallel: false, context_parallel_degree: 1, "
        "offload_activations: false, offload_optimizer: false, offload_parameters: false}");
    return written(folder, "job.yaml", text);
  };
  const Json large = Json::parse(check({job(int64_t{400} << 30), "--json"}).out);
  const int64_t peak = large["memory"]["peak_bytes"];
  const ProgramEnd end = check({job(peak + peak / 50)});
  CHECK(end.code == 5);
  CHECK(contains(end.out, ": tight: allocator retries likely: "));
  CHECK(contains(end.out, "steps take 2 to 7 times as long, or the run ends out of memory."));
  CHECK(check({job(peak - 1)}).code == 4);
}

TEST_CASE("check: warnings have their place, their rule, and an exit code if asked for") {
  const ScratchFolder folder;
  const std::string job = written(folder, "job.yaml", kModel);
  const ProgramEnd end = check({job});
  CHECK(end.code == 0);
  CHECK(contains(end.out, "; 1 warning\n" + job +
                              ":2:32: warning smp/vocabulary-not-padded: vocab_size 50,257 "));
  CHECK(check({job, "--fail-on", "warning"}).code == 6);
  CHECK(contains(check({job, "--annotations", "github"}).out,
                 "\n::warning file=" + job + ",line=2,col=32,title=smp/vocabulary-not-padded::"));
  const Json sarif = Json::parse(check({job, "--annotations", "sarif"}).out);
  CHECK(sarif["runs"][0]["results"][0]["ruleId"] == "smp/vocabulary-not-padded");
}

TEST_CASE("check --json: memory by term and event, seconds by part") {
  const ScratchFolder folder;
  const ProgramEnd end = check({written(folder, "job.yaml", kModel), "--json"});
  CHECK(end.code == 0);
  const Json json = Json::parse(end.out);
  CHECK(json["verdict"] == "fits");
  int64_t bytes = 0;
  for (const Json& term : json["memory"]["terms"]) bytes += term["bytes"].get<int64_t>();
  CHECK(bytes == json["memory"]["peak_bytes"]);
  int largest = 0;
  for (const Json& event : json["memory"]["events"]) largest += event["largest"].get<bool>();
  CHECK(largest == 1);
  double seconds = 0;
  for (const Json& part : json["step"]["parts"]) seconds += part["seconds"].get<double>();
  CHECK(seconds == doctest::Approx(json["step"]["seconds"].get<double>()).epsilon(1e-3));
  CHECK(json["mfu"].get<double>() > 0.05);
  CHECK(json["step"]["bound_by"].is_string());
  CHECK(json["warnings"][0]["id"] == "smp/vocabulary-not-padded");
  CHECK(json["warnings"][0]["line"] == 2);
}

TEST_CASE("check --events: the peaks of a run, the largest marked") {
  const ProgramEnd end = check({kJob, "--events"});
  CHECK(end.code == 0);
  CHECK(contains(end.out, "\n  load and initialisation "));
  CHECK(contains(end.out, "  largest\n"));
  CHECK_FALSE(contains(end.out, "imbalance"));
}

TEST_CASE("check: words that are none of its") {
  const auto refused = [](std::vector<std::string> more, const std::string& text) {
    more.insert(more.begin(), kJob);
    const ProgramEnd end = check(more);
    CHECK(end.code == 2);
    CHECK(end.err == "smp-plan: " + text + "\nsmp-plan --help shows examples\n");
  };
  refused({"--fail-on", "x"}, "--fail-on 'x': expected warning, tight or no");
  refused({"--annotations", "x"}, "--annotations 'x': expected github or sarif");
  refused({"--annotations", "github", "--json"},
          "--json and --annotations both shape the output: run smp-plan check for each");
  refused({"--events", "--json"},
          "--events prints a table for people: --json has the events as well");
}
