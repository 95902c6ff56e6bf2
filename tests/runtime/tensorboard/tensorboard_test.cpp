#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/short_runs.h"
#include "tensorboard/event_file.h"
#include "tensorboard/event_log.h"
#include "tensorboard/scalars.h"

// Frames, checksums and names of event files, and what goes into them; scripts/check-tensorboard
// reads them with TensorBoard's own reader.

namespace smp::tensorboard {
namespace {

namespace fs = std::filesystem;

std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
T number_at(const std::string& bytes, size_t at) {
  T number{};
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(&number, bytes.data() + at, sizeof(T));
  return number;
}

// What stands in a file's records, each with right checksums.
std::vector<std::string> records_of(const std::string& path) {
  const std::string bytes = bytes_of_file(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    CHECK(number_at<uint32_t>(bytes, at + 8) == tensorboard::masked_crc32c(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    CHECK(number_at<uint32_t>(bytes, at + 12 + length) ==
          tensorboard::masked_crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

record::StepMetrics metrics_of(int64_t step) {
  record::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.5;
  metrics.tokens_seen = 100 * step;
  metrics.memory_peak_bytes = int64_t{3} << 30;
  return metrics;
}

}  // namespace

TEST_CASE("checksums are CRC-32C, masked") {
  CHECK(tensorboard::crc32c("123456789") == 0xe3069283);
  CHECK(tensorboard::masked_crc32c("123456789") == 0xc78ab0e5);
  CHECK(tensorboard::crc32c("") == 0);
}

TEST_CASE("a record is length, its checksum, bytes, their checksum") {
  const std::string record = tensorboard::record_of("123456789");
  REQUIRE(record.size() == 25);
  CHECK(record.substr(0, 8) == std::string("\x09\0\0\0\0\0\0\0", 8));
  CHECK(number_at<uint32_t>(record, 8) == tensorboard::masked_crc32c(record.substr(0, 8)));
  CHECK(record.substr(12, 9) == "123456789");
  CHECK(number_at<uint32_t>(record, 21) == 0xc78ab0e5);
}

TEST_CASE("files of one folder sort in the order of their starts, within a second too") {
  const ScratchFolder folder;
  std::vector<std::string> made;
  for (const int64_t second : {1700000000, 1700000000, 1600000000}) {  // a clock that was put back
    made.push_back(tensorboard::EventFile(folder / "tensorboard", "host", second).path());
  }
  CHECK(made == files_in(folder / "tensorboard"));
  CHECK(made[0].find("/events.out.tfevents.1700000000.host.") != std::string::npos);
  CHECK(made[2].find("/events.out.tfevents.1700000002.host.") != std::string::npos);
}

TEST_CASE("an event log has what the run was told, a record a step, and its end") {
  const ScratchFolder folder;
  const test::ShortRuns runs;
  const Plan plan = runs.plan({"", {}});
  {
    tensorboard::EventLog log(folder.path(), plan, 0);
    CHECK(records_of(files_in(folder.path())[0]).size() == 3);  // at once: version, start, hparams
    for (int64_t step = 1; step <= 5; ++step) log.add(metrics_of(step));
    log.end(5);
  }
  { tensorboard::EventLog(folder.path(), plan, 5).add(metrics_of(6)); }  // ends without a word
  const std::vector<std::string> files = files_in(folder.path());
  REQUIRE(files.size() == 2);
  const std::vector<std::string> records = records_of(files[0]);
  CHECK(records.size() == 9);
  CHECK(records[0].find("brain.Event:2") != std::string::npos);
  CHECK(records[2].find("_hparams_/session_start_info") != std::string::npos);
  CHECK(records[3].find("throughput/tokens_per_s") != std::string::npos);
  CHECK(records[8].find("_hparams_/session_end_info") != std::string::npos);
  CHECK(records_of(files[1]).size() == 4);
}

TEST_CASE("where no file can be made, the run is told") {
  const ScratchFolder folder;
  std::ofstream(folder / "tensorboard") << "a file";
  CHECK_THROWS(tensorboard::EventLog(folder / "tensorboard", test::ShortRuns().plan({"", {}}), 0));
}

TEST_CASE("scalars have a tag each: what was not measured has none") {
  const auto tags = [](const record::StepMetrics& metrics) {
    const auto scalars = tensorboard::scalars_of(metrics);
    return std::map<std::string, double>(scalars.begin(), scalars.end());
  };
  record::StepMetrics metrics = metrics_of(7);
  CHECK(tags(metrics).at("loss/train") == 2.5);
  CHECK(tags(metrics).at("tokens_seen") == 700);
  CHECK(tags(metrics).at("memory/peak_GiB") == 3);
  for (const char* tag : {"loss/evaluation", "throughput/mfu", "loss_scale/value"}) {
    CHECK(tags(metrics).count(tag) == 0);
  }
  metrics.evaluation_loss = 2;
  metrics.mfu = 0.5;
  CHECK(tags(metrics).at("loss/evaluation") == 2);
  CHECK(tags(metrics).at("perplexity/evaluation") == doctest::Approx(7.389).epsilon(1e-4));
  CHECK(tags(metrics).at("throughput/mfu") == 0.5);
  metrics.epochs = {{"wiki", 0.37}, {"code", 1.2}};
  CHECK(tags(metrics).at("data/epoch/wiki") == 0.37);
  CHECK(tags(metrics).at("data/epoch/code") == 1.2);
  metrics.accuracy = 0.75;
  CHECK(tags(metrics).at("accuracy/evaluation") == 0.75);
  CHECK(tags(metrics).count("perplexity/evaluation") == 0);
}

TEST_CASE("hyperparameters: what runs are compared in, and what is not the default") {
  const test::ShortRuns runs;
  Plan plan = runs.plan({"t2", {.tensor = 2}});
  plan.job.training.optimizer.beta1 = 0.5;
  plan.job.name = "a name";
  plan.job.training.checkpoint.every_steps = 7;
  const auto hparams = tensorboard::hparams_of(plan);
  const std::map<std::string, std::string> found(hparams.begin(), hparams.end());
  CHECK(found.at("training.optimizer.beta1") == "0.5");
  CHECK(found.at("training.seed") == "1234");  // the default, and shown
  CHECK(found.at("parallel.tensor_parallel_degree") == "2");
  CHECK(found.at("model.hidden_size") == std::to_string(plan.job.model.hidden_size));
  for (const char* key : {"name", "training.checkpoint.every_steps", "training.optimizer.beta2"}) {
    CHECK(found.count(key) == 0);
  }
}

}  // namespace smp::tensorboard
