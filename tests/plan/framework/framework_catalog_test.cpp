#include "smp/plan/framework/framework_catalog.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "plan/plan_samples.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/rules/engine_rules.h"

namespace smp::framework {
namespace {

const std::string kModel =
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";
const std::string kMine =
    "extends: fsdp2\nabout: {name: mine, title: ours, versions: any, sources: []}\n"
    "residuals: {memory_rows: 0, time_rows: 0}\nprocess: {context_bytes: 3GiB}\n";

std::string refused(const std::string& path, const std::string& framework) {
  return error_of([&] {
    jobfile::read_job({{path, kModel + "parallel:\n  framework: " + framework + "\n"}});
  });
}

}  // namespace

TEST_CASE("a job names a shipped framework, and is of smp without the key") {
  JobSpec job = jobfile::read_job({{"job.yaml", kModel}});
  CHECK(job.parallel.framework.is_engine());
  CHECK(framework_of(job).name == "smp");
  job = jobfile::read_job({{"job.yaml", kModel}}, {"parallel.framework=fsdp2"});
  CHECK_FALSE(job.parallel.framework.is_engine());
  CHECK(&framework_of(job) == shipped_framework("fsdp2").get());
  job.parallel.framework = {"deepspeed"};  // as a program may say it
  CHECK(&framework_of(job) == shipped_framework("deepspeed").get());
}

TEST_CASE("an unknown framework is a name without habits, for the frameworks that it may be") {
  const JobSpec job = jobfile::read_job({{"job.yaml", kModel}}, {"parallel.framework=unknown"});
  CHECK(is_unknown(job.parallel.framework));
  CHECK_FALSE(job.parallel.framework.is_engine());
  CHECK(job.parallel.framework.habits == nullptr);
  CHECK(framework_named("unknown").habits == nullptr);
  const std::vector<FrameworkChoice> possible = possible_frameworks();
  CHECK(possible.size() >= 9);  // all but smp, smp-v1 and smp-v2
  CHECK(possible.size() == named_frameworks().size() - 4);
  for (const FrameworkChoice& one : possible) {
    CHECK(one.habits->name == one.name);
    CHECK_FALSE(one.name.starts_with("smp"));
  }
}

TEST_CASE("a framework file is read from a path, which starts in the job file's folder") {
  const ScratchFolder folder;
  std::ofstream(folder / "mine.yaml") << kMine;
  const JobSpec job =
      jobfile::read_job({{folder / "job.yaml", kModel + "parallel: {framework: mine.yaml}\n"}});
  CHECK(job.parallel.framework.name == folder / "mine.yaml");
  CHECK(framework_of(job).name == "mine");
  CHECK(framework_model(job).fixed_bytes == 3.0 * (1 << 30));
  CHECK(framework_model(job).fp32_weights);
  CHECK(framework_named(folder / "mine.yaml").habits->name == "mine");
}

TEST_CASE("a framework that is not known, or whose file is not there or not right, is refused") {
  CHECK(
      refused("job.yaml", "fsdp")
          .starts_with(
              "job.yaml:7:3: unknown framework 'fsdp'; PyTorch FSDP is called 'fsdp2' here. Known "
              "frameworks: automodel, "));
  CHECK(refused("job.yaml", "deepsped")
            .starts_with("job.yaml:7:3: unknown framework 'deepsped', did you mean 'deepspeed'? "
                         "Known frameworks: "));
  CHECK(refused("job.yaml", "colossal")
            .starts_with("job.yaml:7:3: unknown framework 'colossal'. Known frameworks: "));
  const ScratchFolder folder;
  CHECK(refused(folder / "job.yaml", "mine.yaml")
            .starts_with((folder / "job.yaml") + ":7:3: " + (folder / "mine.yaml") +
                         ": No such file or directory"));
  std::ofstream(folder / "mine.yaml") << kMine << "mesages: {gather_share: 0.5}\n";
  const std::string told = (folder / "mine.yaml") +
                           ":5:1: unknown key 'mesages' in a framework file, did you mean "
                           "'messages'?\n  mesages: {gather_share: 0.5}\n  ^";
  CHECK(refused(folder / "job.yaml", "mine.yaml") == told);
  CHECK(error_of([&] { framework_named(folder / "mine.yaml"); }) == told);
  CHECK(error_of([] { framework_named("fsdp3"); }).starts_with("unknown framework 'fsdp3', did"));
}

TEST_CASE(
    "the plan of a user's framework can be read without the file, but neither priced nor run") {
  const ScratchFolder folder;
  std::ofstream(folder / "mine.yaml") << kMine;
  Plan plan = sample_plan(small_gpt2(), {});
  plan.job.parallel.framework = framework_named(folder / "mine.yaml");
  const std::string text = planfile::write_plan(plan);
  std::filesystem::remove(folder / "mine.yaml");
  const Plan back = planfile::parse_plan("plan.yaml", text);
  CHECK(back.job.parallel.framework.name == folder / "mine.yaml");
  CHECK(planfile::write_plan(back) == text);
  CHECK(error_of([&] { framework_of(back.job); }) ==
        "parallel.framework: " + (folder / "mine.yaml") +
            " is a framework file, of which a plan keeps only the path: plan the job again to "
            "price it");
  const std::vector<std::string> lacks = rules::what_engine_lacks(back);
  REQUIRE(lacks.size() == 1);
  CHECK(lacks[0].starts_with("parallel.framework: other than smp"));
}

TEST_CASE("the list of frameworks says their versions, ranges and rows") {
  CHECK(frameworks_text().find("\nmegatron-core        0.93 to 1.07, 576 runs   0.95 to 1.15, 21 "
                               "runs    megatron/core at d98e8a6\n") != std::string::npos);
  CHECK(frameworks_json().find("\"name\": \"megatron-core\",\n    \"title\": \"Megatron-LM "
                               "(megatron/core) with Transformer Engine\",\n") !=
        std::string::npos);
}

}  // namespace smp::framework
