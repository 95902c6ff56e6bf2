#include <doctest/doctest.h>

#include <sstream>

#include "program.h"
#include "scratch_folder.h"
#include "smp/plan/text/json.h"
#include "tolerances.h"

// The small mixtures of configs/jobs from outside: planned, trained in three layouts on the text of
// the quickstart, with a falling loss.

using namespace smp;

namespace {

struct Trained {
  std::vector<text::Json> steps;
  text::Json report, config;
};

Trained train(const std::string& job, const std::vector<std::string>& layout) {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  std::vector<std::string> planning = {SMP_PLAN, SMP_SOURCE_DIR "/configs/jobs/" + job, "-o", plan};
  for (const std::string& pin : layout) planning.insert(planning.end(), {"--set", pin});
  for (const char* pin : {"training.steps=12", "training.micro_batch=1"}) {
    planning.insert(planning.end(), {"--set", pin});
  }
  const ProgramEnd planned = run_program(planning);
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  REQUIRE(run_program({SMP_LAUNCH, "--dry-run", plan}).code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", run, plan});
  const ProgramEnd ended = launched.wait(std::chrono::seconds(240));
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  Trained trained;
  trained.report = text::Json::parse(read_file(run + "/report.json"));
  trained.config = text::Json::parse(read_file(run + "/weights/config.json"));
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    trained.steps.push_back(text::Json::parse(line));
  }
  return trained;
}

void check_job(const std::string& job, const std::string& model_type) {
  const std::vector<std::string> layouts[] = {
      {"parallel.tensor_parallel_degree=1", "parallel.pipeline_parallel_degree=1",
       "parallel.sharded_data_parallel_degree=4", "parallel.sharding=parameters"},
      {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"},
      {"parallel.tensor_parallel_degree=4", "parallel.pipeline_parallel_degree=1"}};
  std::vector<double> last;
  for (const std::vector<std::string>& layout : layouts) {
    INFO(job, " ", layout.front());
    const Trained trained = train(job, layout);
    CHECK(trained.config.at("model_type") == model_type);
    REQUIRE(trained.steps.size() == 12);
    const auto loss = [&](size_t step) { return trained.steps.at(step).at("loss").get<double>(); };
    CHECK(loss(0) > 5.4);  // above ln 256
    CHECK(loss(5) < loss(0));
    CHECK(loss(11) < loss(5));
    CHECK(loss(11) < loss(0) - 0.8);
    last.push_back(loss(11));
    const text::Json& experts = trained.steps.back().at("experts");
    CHECK(experts.at("imbalance").get<double>() >= 1);
    CHECK(experts.at("dropped") == 0);
    for (const auto& [layer, tokens] : experts.at("tokens").items()) {
      int64_t sum = 0;
      for (const text::Json& one : tokens) sum += one.get<int64_t>();
      CHECK(sum == 2 * 8 * 256);  // experts of a token x samples x tokens
    }
    for (const text::Json& rank : trained.report.at("ranks")) {
      CHECK(rank.at("predicted_wire_bytes") == rank.at("measured_wire_bytes"));
      CHECK(rank.at("measured_peak_bytes").get<double>() <=
            rank.at("predicted_peak_bytes").get<double>() * (1 + tolerance::kPeakBytes));
    }
  }
  for (const double loss : last) CHECK(loss == doctest::Approx(last.front()).epsilon(1e-3));
}

}  // namespace

TEST_CASE("a small Mixtral trains in three layouts") { check_job("mixtral-tiny.yaml", "mixtral"); }

TEST_CASE("a small DeepSeek trains in three layouts") {
  check_job("deepseek-tiny.yaml", "deepseek_v3");
}
