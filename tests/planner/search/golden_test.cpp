#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/search/check_plan.h"
#include "smp/planner/search/search.h"

// Planner cases as data: tests/golden/planner/NAME.yaml is a job, NAME.expected what the planner
// says of it. A first line "# with a.yaml b.yaml" names files of this repository that come before
// it. Cases whose names begin with "fastest-" are searched by that strategy, the others by
// best-practice. SMP_UPDATE_GOLDEN=1 writes the expected files anew, for a change whose diff one
// then reads.

using namespace smp;
using namespace smp::choice;
using namespace smp::jobfile;
using namespace smp::memory;
using namespace smp::mesh;
using namespace smp::model;
using namespace smp::planfile;
using namespace smp::prediction;
using namespace smp::search;
using namespace smp::time;

namespace {

const std::string kRoot = SMP_SOURCE_DIR "/";

JobSpec read_case(const std::string& path) {
  std::vector<JobSource> sources;
  const JobSource own = load_job_source(path);
  std::istringstream first(own.text.substr(0, own.text.find('\n')));
  std::string word;
  first >> word >> word;  // "#", "with"
  if (word == "with") {
    while (first >> word) sources.push_back(load_job_source(kRoot + word));
  }
  const bool says_more =
      own.text.find(":\n") != std::string::npos || own.text.find('{') < own.text.size();
  if (says_more) sources.push_back(own);
  return read_job(sources);
}

std::string described(const Plan& plan, bool practice) {
  const Degrees& degrees = plan.degrees;
  const TrainingSpec& training = plan.job.training;
  const ParallelSpec& parallel = plan.job.parallel;
  std::string text = fmt::format(
      "pipeline {} tensor {} shard {} replica {}\nsharding {} precision {} checkpointing {} "
      "offload "
      "{}\nmicro_batch {} microbatches {} global_batch {}\n",
      degrees.pipeline, degrees.tensor, degrees.shard, degrees.replica, name_of(*parallel.sharding),
      name_of(*training.precision), *parallel.activation_checkpointing,
      *parallel.offload_activations, *training.micro_batch, *training.microbatches,
      *training.global_batch);
  for (const RankPrediction& rank : plan.predictions.ranks) {
    if (rank.tensor > 0) continue;
    text +=
        fmt::format("stage {} peak {} bytes in {}\n", rank.stage, rank.peak_bytes, rank.peak_phase);
  }
  for (const std::string& reason : plan.reasons) {
    // Seconds move with every constant of the time model; what they decide is the layout above.
    if (practice && !reason.starts_with("offloading against")) {
      text += fmt::format("because {}\n", reason);
    }
  }
  for (const std::string& problem : check(plan)) text += fmt::format("check {}\n", problem);
  return text;
}

std::string described(const SearchResult& result) {
  if (const Plan* plan = std::get_if<Plan>(&result.best))
    return described(*plan, result.strategy == Strategy::kBestPractice);
  const Infeasible& infeasible = std::get<Infeasible>(result.best);
  std::string text = fmt::format("infeasible: {}\n", infeasible.problem);
  for (const std::string& change : infeasible.changes) text += fmt::format("change {}\n", change);
  return text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("planner cases give what their expected files say") {
  std::vector<std::string> cases;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "tests/golden/planner")) {
    if (entry.path().extension() == ".yaml") cases.push_back(entry.path().string());
  }
  std::sort(cases.begin(), cases.end());
  CHECK(cases.size() >= 20);
  for (const std::string& path : cases) {
    CAPTURE(path);
    const bool fastest = std::filesystem::path(path).filename().string().starts_with("fastest-");
    const SearchResult result = plan_job(
        read_case(path), {.strategy = fastest ? Strategy::kFastest : Strategy::kBestPractice});
    if (const Plan* plan = std::get_if<Plan>(&result.best)) {
      const std::string written = write_plan(*plan);
      CHECK(write_plan(parse_plan(path, written)) == written);
    }
    const std::string got = described(result);
    const std::string expected = path.substr(0, path.size() - 5) + ".expected";
    if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << got;
    CHECK(got == read_text(expected));
  }
}

TEST_CASE("SageMaker's published layouts pass, and an open layout shards over no more ranks") {
  const struct {
    const char* name;
    int64_t published_degree;
  } rows[] = {{"v2-7b", 8},   {"v2-70b", 256}, {"v2-175b", 128},
              {"v1-10b", 32}, {"v1-30b", 16},  {"v1-60b", 16}};
  for (const auto& row : rows) {
    CAPTURE(std::string(row.name));
    const std::string path = kRoot + "tests/golden/planner/sagemaker-" + row.name;
    const SearchOptions practice{.strategy = Strategy::kBestPractice};
    const SearchResult published = plan_job(read_case(path + "-published.yaml"), practice);
    REQUIRE(std::holds_alternative<Plan>(published.best));
    const Plan& plan = std::get<Plan>(published.best);
    CHECK(plan.degrees.shard == row.published_degree);
    CHECK(check(plan).empty());

    const SearchResult open = plan_job(read_case(path + "-open.yaml"), practice);
    REQUIRE(std::holds_alternative<Plan>(open.best));
    const Plan& chosen = std::get<Plan>(open.best);
    CHECK(chosen.degrees.shard <= row.published_degree);
    CHECK(chosen.degrees.world() == plan.degrees.world());
    CHECK(chosen.job.training.global_batch == plan.job.training.global_batch);
    CHECK(check(chosen).empty());
    const auto says_why = [](const std::string& reason) {
      return reason.find("the smallest shard degree that fits") != std::string::npos;
    };
    CHECK(std::any_of(chosen.reasons.begin(), chosen.reasons.end(), says_why));
  }
}

TEST_CASE("at 8k and 16k tokens sharding alone does not fit where tensor parallelism does") {
  for (const std::string length : {"8k", "16k"}) {
    CAPTURE(length);
    const std::string path = kRoot + "tests/golden/planner/sequence-" + length;
    for (const Strategy strategy : {Strategy::kBestPractice, Strategy::kFastest}) {
      const SearchOptions options{.strategy = strategy};
      const SearchResult alone = plan_job(read_case(path + "-sharding-alone.yaml"), options);
      CHECK((std::holds_alternative<Infeasible>(alone.best) || strategy == Strategy::kFastest));
      const SearchResult open = plan_job(read_case(path + "-open.yaml"), options);
      REQUIRE(std::holds_alternative<Plan>(open.best));
      const Degrees& degrees = std::get<Plan>(open.best).degrees;
      // The fastest may move activations to the host instead.
      const bool offloads = std::get<Plan>(open.best).job.parallel.offload_activations == true;
      CHECK((degrees.tensor > 1 ||
             (strategy == Strategy::kFastest && (degrees.pipeline > 1 || offloads))));
      CHECK(check(std::get<Plan>(open.best)).empty());
    }
  }
}

TEST_CASE(
    "Lightning's claims for 8 A100 of 40 GB: 2.0 B parameters instead of 1.2 B, to 15 GiB less") {
  const std::string path = kRoot + "tests/golden/planner/lightning-";
  const auto job_of = [&](const std::string& name) { return read_case(path + name + ".yaml"); };
  const auto peak_of = [&](const std::string& name) {
    const SearchResult result = plan_job(job_of(name));
    const Plan* plan = std::get_if<Plan>(&result.best);
    return plan == nullptr ? 0 : plan->predictions.ranks.front().peak_bytes;
  };
  const auto parameters_of = [&](const std::string& name) {
    return static_cast<double>(parameter_count(job_of(name).model));
  };
  CHECK(parameters_of("plain-22-layers") == doctest::Approx(1.2e9).epsilon(0.02));
  CHECK(parameters_of("plain-32-layers") == doctest::Approx(2.0e9).epsilon(0.02));
  const int64_t plain = peak_of("plain-22-layers");
  const int64_t sharded = peak_of("sharded-22-layers");
  CHECK(plain > 0);
  CHECK(peak_of("plain-32-layers") == 0);
  CHECK(peak_of("sharded-32-layers") > 0);
  CHECK(plain - sharded > int64_t{10} << 30);
  CHECK(plain - sharded < int64_t{15} << 30);
}
