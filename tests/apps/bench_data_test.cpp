#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "plan/data/corpus.h"
#include "program.h"
#include "smp/plan/text/json.h"

namespace smp {
namespace {

// A plan of two stages of two ranks each.
std::string write_plan_on(const ScratchFolder& folder, const std::string& data,
                          const std::string& model = "") {
  const std::string job = folder / "job.yaml", plan = folder / "plan.yaml";
  std::ofstream(job)
      << "model: "
      << (model.empty()
              ? "{family: gpt2, num_layers: 6, hidden_size: 16, num_heads: 2, vocab_size: 60000}"
              : model)
      << "\ncluster: {hosts: 1, processes_per_host: 6, device: cpu, memory_per_process: 4GiB}\n"
         "training: {sequence_length: 16, global_batch: 8, micro_batch: 2, microbatches: 2, "
         "steps: 3, data: "
      << data << "}\nparallel: {pipeline_parallel_degree: 3, tensor_parallel_degree: 1}\n";
  const ProgramEnd planned = run_program({SMP_PLAN, job, "-o", plan});
  CAPTURE(planned.err);
  REQUIRE(planned.code == 0);
  return plan;
}

ProgramEnd measured(const std::string& plan, const std::vector<std::string>& options) {
  return run_program(
      smp::joined({SMP_BENCH, "data", plan, "--seconds", "0.01", "--repeats", "3"}, options));
}

}  // namespace

TEST_CASE("smp-bench data: what a rank of a plan reads, from which source, packed how, how fast") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", corpus::counted_documents(100, 50));
  const auto tokens = corpus::joined(corpus::counted_documents(100, 50)).size();
  const std::string plan = write_plan_on(folder, "{path: " + (folder / "a") + ", pack: documents}");
  const ProgramEnd first = measured(plan, {});
  CAPTURE(first.err);
  REQUIRE(first.code == 0);
  CHECK(first.out.starts_with(
      "rank 0 of 6: 2 x 2 samples of 16 tokens: tokens, document starts\nsource: " +
      std::to_string(tokens) + " tokens (megatron) in 1 file under " + (folder / "a")));
  CHECK(contains(first.out, "\npack: documents\nfirst pass: "));
  CHECK(contains(first.out, " M tokens/s, the median of 3 (from "));
  const ProgramEnd last = measured(plan, {"--rank", "5", "--json"});
  REQUIRE(last.code == 0);
  const auto json = text::Json::parse(last.out);
  CHECK(json["rank"] == 5);
  CHECK(json["ranks"] == 6);
  CHECK(json["pack"] == "documents");
  CHECK(json["batch_tokens"] == 64);
  CHECK(json["steps"] > 0);
  REQUIRE(json["tokens_per_s"].size() == 3);
  CHECK(json["median_tokens_per_s"] > 0);
}

TEST_CASE("smp-bench data says what it cannot measure") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", corpus::counted_documents(100, 50));
  const std::string plan = write_plan_on(folder, "{path: " + (folder / "a") + "}");
  const auto error_of = [&](const std::string& of, const std::vector<std::string>& options,
                            int code) {
    const ProgramEnd end = measured(of, options);
    CHECK(end.code == code);
    CHECK(end.out.empty());
    return end.err;
  };
  CHECK(error_of(plan, {"--rank", "6"}, 3) == "smp-bench: --rank 6: the plan has ranks 0 to 5\n");
  CHECK(error_of(plan, {"--rank", "1"}, 3) ==
        "smp-bench: --rank 1: the rank's stage reads no data: give a rank of the first or last "
        "stage\n");
  CHECK(error_of(folder / "nothing.yaml", {}, 3) ==
        "smp-bench: " + (folder / "nothing.yaml") + ": No such file or directory\n");
  CHECK(contains(error_of(plan, {"--repeats", "0"}, 2), "--repeats"));
  std::ofstream(folder / "a.bin") << "ab";
  CHECK(contains(error_of(plan, {}, 3), "training.data.path: "));
  const ProgramEnd help = run_program({SMP_BENCH, "data", "--help"});
  CHECK(contains(help.out, "smp-bench data plan.yaml --rank 3 --repeats 9 --json"));
}

TEST_CASE("smp-bench data is for text and tokens") {
  const ScratchFolder folder;
  std::ofstream(folder / "digits.csv") << "0,1,2,3,4\n1,2,3,4,5\n0,1,2,3,4\n1,2,3,4,5\n";
  const std::string plan = folder / "plan.yaml";
  const ProgramEnd planned =
      run_program({SMP_PLAN, std::string(SMP_SOURCE_DIR) + "/configs/jobs/digits.yaml", "-o", plan,
                   "--set", "training.data.path=" + (folder / "digits.csv")});
  CAPTURE(planned.err);
  REQUIRE(planned.code == 0);
  const ProgramEnd end = measured(plan, {});
  CHECK(end.code == 3);
  CHECK(
      end.err ==
      "smp-bench: the plan's model reads images; `smp-bench data` supports text and tokens only\n");
}

}  // namespace smp
