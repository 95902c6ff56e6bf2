#include "smp/plan/runinfo/training_record.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "files_and_errors.h"
#include "jobfile/field_table.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"

namespace smp {
namespace {

JobSpec a_job() {
  return jobfile::read_job({{"job.yaml", R"(
model: {family: llama, num_layers: 2, hidden_size: 32, num_heads: 2, ffn_hidden_size: 64, vocab_size: 256}
training: {precision: fp16, evaluation: {every_steps: 10}, optimizer: {schedule: wsd}}
)"}},
                           {});
}

runinfo::TrainingRecord a_record() {
  return runinfo::record_training(a_job(), {{"a.txt", 100, 1}, {"b.txt", 200, 2}});
}

bool is_listed(const std::string& path) {
  for (const runinfo::ChangeableKey& key : runinfo::changeable_keys()) {
    if (path == key.path || path.starts_with(std::string(key.path) + ".")) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every key is compared but those that are listed: so is one that nobody knows yet") {
  const runinfo::TrainingRecord checkpoint = a_record();
  CHECK(checkpoint.job.size() > 80);
  CHECK(runinfo::training_changes(checkpoint, checkpoint).empty());
  for (size_t i = 0; i < checkpoint.job.size(); ++i) {
    runinfo::TrainingRecord job = checkpoint;
    const std::string& path = checkpoint.job[i].first;  // clang 14 lets no lambda have a binding
    const std::string& value = checkpoint.job[i].second;
    job.job[i].second = value + "1";
    INFO(path);
    const std::vector<std::string> changes = runinfo::training_changes(checkpoint, job);
    if (is_listed(path)) {
      CHECK(changes.empty());
    } else {
      CHECK(changes == std::vector<std::string>{fmt::format(
                           "{}: {} in the checkpoint, {}1 in this job", path, value, value)});
    }
  }
  runinfo::TrainingRecord later = checkpoint;
  later.job.emplace_back("training.of_a_later_version", "3");
  CHECK(runinfo::training_changes(later, checkpoint) ==
        std::vector<std::string>{
            "training.of_a_later_version: 3 in the checkpoint, not in this job"});
}

TEST_CASE("a key that one side does not say has its default") {
  const runinfo::TrainingRecord job = a_record();
  runinfo::TrainingRecord checkpoint = job;
  std::erase_if(checkpoint.job, [](const auto& one) { return one.first == "model.qk_norm"; });
  CHECK(runinfo::training_changes(checkpoint, job).empty());  // an earlier version had no such key
  std::erase_if(checkpoint.job, [](const auto& one) { return one.first == "model.hidden_size"; });
  CHECK(runinfo::training_changes(checkpoint, job) ==
        std::vector<std::string>{"model.hidden_size: not in the checkpoint, 32 in this job"});
}

TEST_CASE("a mask that is not said is none") {
  JobSpec job = a_job();
  runinfo::TrainingRecord unsaid = runinfo::record_training(job, {});
  job.training.data_loss_mask = false;
  CHECK(runinfo::training_changes(unsaid, runinfo::record_training(job, {})).empty());
  job.training.data_loss_mask = true;
  CHECK(runinfo::training_changes(unsaid, runinfo::record_training(job, {})) ==
        std::vector<std::string>{
            "training.data.loss_mask: false in the checkpoint, true in this job"});
  std::erase_if(unsaid.job, [](const auto& one) { return one.first == "training.data.loss_mask"; });
  job.training.data_loss_mask = {};
  CHECK(runinfo::training_changes(unsaid, runinfo::record_training(job, {}))
            .empty());  // of an earlier version
}

TEST_CASE("samples that are held out now, and were trained on, are another training") {
  JobSpec job = a_job();
  job.training.global_batch = 4;
  const runinfo::TrainingRecord checkpoint = runinfo::record_training(job, {});
  job.training.evaluation.every_steps = 20;  // as many are held out
  CHECK(runinfo::training_changes(checkpoint, runinfo::record_training(job, {})).empty());
  job.training.evaluation.every_steps = 0;
  CHECK(
      runinfo::training_changes(checkpoint, runinfo::record_training(job, {})) ==
      std::vector<std::string>{"training.evaluation.samples: 4 in the checkpoint, 0 in this job"});
}

TEST_CASE("all that differs is said at once, in the order of the job file, then the data") {
  const runinfo::TrainingRecord checkpoint = a_record();
  JobSpec other = a_job();
  other.training.seed = 7;
  other.model.norm_epsilon = 0.5;
  other.parallel.tensor_parallel_degree = 2;  // may change
  CHECK(error_of([&] {
          runinfo::check_same_training(
              "step-00000010", checkpoint,
              runinfo::record_training(other, {{"x.txt", 100, 9}, {"y.txt", 200, 2}}));
        }) ==
        "step-00000010: the checkpoint belongs to another training:\n  model.norm_epsilon: 1e-05 "
        "in the checkpoint, 0.5 in this job\n  training.seed: 1234 in the checkpoint, 7 in this "
        "job\n  training.data: the content of x.txt of 100 bytes differs from a.txt in the "
        "checkpoint\nrestore these values, or start a new run in another folder without --resume; "
        "docs/checkpoints.md lists the keys that may change");
}

TEST_CASE("data are their bytes in the order of reading, wherever they lie") {
  const auto changes = [](std::vector<files::FileIdentity> there,
                          std::vector<files::FileIdentity> here) {
    return runinfo::training_changes({{}, std::move(there)}, {{}, std::move(here)});
  };
  CHECK(changes({{"a.txt", 5, 1}}, {{"/data/b.txt", 5, 1}}).empty());
  CHECK(changes({{"a.txt", 5, 1}}, {{"a.txt", 6, 1}}) ==
        std::vector<std::string>{
            "training.data: a.txt of 5 bytes in the checkpoint, a.txt of 6 bytes in this job"});
  CHECK(changes({{"a", 5, 1}, {"b", 6, 2}}, {{"b", 6, 2}, {"a", 5, 1}}).size() == 2);
  // Of lists of other lengths other parts were looked at.
  CHECK(changes({{"a", 5, 1}}, {{"a", 5, 3}, {"b", 6, 2}}) ==
        std::vector<std::string>{"training.data: 1 files in the checkpoint, 2 in this job"});
  const std::vector<files::FileIdentity> many(20, {"a", 5, 1}), others(20, {"a", 5, 2});
  CHECK(changes(many, others).size() == 9);
  CHECK(changes(many, others).back() == "training.data: and 12 files more");
}

TEST_CASE("a job's data are identified by size and content") {
  const ScratchFolder folder;
  std::ofstream(folder / "b.txt") << std::string(3000, 'b');
  std::ofstream(folder / "a.txt") << std::string(4000, 'a');
  JobSpec job = a_job();
  job.training.sequence_length = 16;
  job.training.evaluation.every_steps = 0;
  job.training.data_path = folder.path();
  const std::vector<files::FileIdentity> data = runinfo::identify_data(job);
  REQUIRE(data.size() == 2);
  CHECK(data[0].name == "a.txt");
  CHECK(data[1].bytes == 3000);
  std::ofstream(folder / "b.txt") << std::string(3000, 'c');
  CHECK(runinfo::identify_data(job)[0] == data[0]);
  CHECK(runinfo::identify_data(job)[1].sampled_hash != data[1].sampled_hash);
}

TEST_CASE("docs/checkpoints.md lists what may change, as the code does") {
  std::string table;
  for (const runinfo::ChangeableKey& key : runinfo::changeable_keys()) {
    const bool is_key =
        jobfile::find_field(key.path) != nullptr || jobfile::find_section(key.path) != nullptr;
    CHECK_MESSAGE(is_key, key.path);
    table += fmt::format("| `{}` | {} |\n", key.path, key.reason);
  }
  INFO(table);
  CHECK(text_of(SMP_SOURCE_DIR "/docs/checkpoints.md").find("\n|---|---|\n" + table + "\n") !=
        std::string::npos);
}

}  // namespace smp
