#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/plan/data_files.h"
#include "smp/runtime/last_words.h"
#include "smp/runtime/text_data.h"

using namespace smp;

namespace {

TrainingSpec training_on(const std::string& path, int64_t sequence_length) {
  TrainingSpec training;
  training.data_path = path;
  training.sequence_length = sequence_length;
  return training;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

struct Batch {
  std::vector<int64_t> tokens, targets;
};

Batch read(const TextData& data, int64_t step, int64_t first, int64_t count, int64_t length) {
  Batch batch;
  batch.tokens.resize(static_cast<size_t>(count * length));
  batch.targets.resize(static_cast<size_t>(count * length));
  data.read(step, first, count, batch.tokens.data(), batch.targets.data());
  return batch;
}

}  // namespace

TEST_CASE("samples are windows of the text, targets one byte ahead, across file ends") {
  const ScratchFolder folder;
  write(folder / "a.txt", "abcd");
  write(folder / "b.txt", "e");
  write(folder / "c.txt", "\xff!");
  const std::string text("abcd\0e\0\xff!", 9);
  const TextData data(find_data_files(training_on(folder.path(), 4)), 4, 7);
  CHECK(data.total_bytes() == 9);
  std::set<int64_t> starts;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const int64_t start = data.window_start(0, sample);
    starts.insert(start);
    const Batch batch = read(data, 0, sample, 1, 4);
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = static_cast<size_t>(start) + i;
      CHECK(batch.tokens[i] == static_cast<unsigned char>(text[at]));
      CHECK(batch.targets[i] == static_cast<unsigned char>(text[at + 1]));
    }
  }
  CHECK(starts == std::set<int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("the batch of a step is the same however the ranks share it") {
  const ScratchFolder folder;
  write(folder / "text", std::string(5000, 'x').append("the end of it all"));
  const TextData data(find_data_files(training_on(folder / "text", 32)), 32, 1);
  const Batch whole = read(data, 3, 0, 8, 32);
  Batch joined;
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 4}}) {
    const Batch part = read(data, 3, first, count, 32);
    joined.tokens.insert(joined.tokens.end(), part.tokens.begin(), part.tokens.end());
    joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
  }
  CHECK(joined.tokens == whole.tokens);
  CHECK(joined.targets == whole.targets);
  CHECK(data.window_start(3, 0) != data.window_start(4, 0));
  const TextData other(find_data_files(training_on(folder / "text", 32)), 32, 2);
  CHECK(data.window_start(3, 0) != other.window_start(3, 0));
}

TEST_CASE(
    "held-out samples follow each other to the text's end, and no training sample meets them") {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  write(folder / "text", text);
  TrainingSpec training = training_on(folder / "text", 8);
  training.global_batch = 2;
  training.evaluation.every_steps = 1;
  training.evaluation.samples = 4;
  const TextData data(find_data_files(training), 8, 7, held_out_samples(training));
  // 100 - (4 x 8 + 1) bytes are trained on.
  for (int64_t i = 0; i < 4; ++i) {
    std::vector<int64_t> tokens(8), targets(8);
    data.read_held_out(i, 1, tokens.data(), targets.data());
    CHECK(tokens.front() == 67 + 8 * i);
    CHECK(targets.back() == 67 + 8 * i + 8);
  }
  // What fills the last batch has nothing to predict.
  std::vector<int64_t> tokens(16), targets(16);
  data.read_held_out(3, 2, tokens.data(), targets.data());
  CHECK(tokens[8] == 91);
  CHECK(targets[7] == 99);
  CHECK(std::vector<int64_t>(targets.begin() + 8, targets.end()) ==
        std::vector<int64_t>(8, kNoTarget));
  int64_t last = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    last = std::max(last, data.window_start(3, sample) + 8);
  }
  CHECK(last == 66);
}

TEST_CASE("evaluation without whole batches, or without text to train on, is refused") {
  const ScratchFolder folder;
  write(folder / "text", std::string(100, 'x'));
  TrainingSpec training = training_on(folder / "text", 8);
  training.global_batch = 6;
  CHECK(held_out_samples(training) == 0);
  training.evaluation.every_steps = 10;
  CHECK(held_out_samples(training) == 6);
  training.evaluation.samples = 8;
  CHECK_THROWS_WITH(find_data_files(training),
                    "training.evaluation.samples (8) is no multiple of global_batch (6), and an "
                    "evaluation runs whole batches: the last one has 2 of 6; give 12, or "
                    "pad_last_batch: true");
  training.evaluation.pad_last_batch = true;
  CHECK(held_out_samples(training) == 8);
  training.evaluation.samples = 12;
  CHECK_THROWS_WITH(find_data_files(training),
                    ("training.evaluation.samples: " + (folder / "text") +
                     " holds 100 bytes, which is not 12 held-out samples of 8 bytes and one to "
                     "train on")
                        .c_str());
}

TEST_CASE("a file that shrinks during the run is named") {
  const ScratchFolder folder;
  const std::string path = folder / "text";
  write(path, std::string(100, 'x'));
  const TextData data(find_data_files(training_on(path, 99)), 99, 1);
  write(path, "gone");
  CHECK_THROWS_WITH(read(data, 0, 0, 1, 99),
                    ("training.data.path: " + path +
                     " has become shorter than the 100 bytes it had at the start of the run")
                        .c_str());
}

TEST_CASE("a file that is replaced, or written again in place, during the run is named") {
  const ScratchFolder folder;
  const std::string path = folder / "text";
  write(path, std::string(100, 'x'));
  const TextData data(find_data_files(training_on(path, 99)), 99, 1);
  const auto changed = [&] {
    const std::string text = error_of([&] { read(data, 0, 0, 1, 99); });
    return text.starts_with("'" + path + "' has changed since the run began: it had 100 bytes (");
  };
  SUBCASE("replaced") {
    write(folder / "other", std::string(100, 'y'));
    std::filesystem::rename(folder / "other", path);
    CHECK(changed());
  }
  SUBCASE("written again") {
    write(path, std::string(100, 'y'));
    CHECK(changed());
  }
  SUBCASE("longer") {
    write(path, std::string(101, 'x'));
    CHECK(changed());
  }
  SUBCASE("the same again") {
    write(path, std::string(100, 'x'));
    CHECK_NOTHROW(read(data, 0, 0, 1, 99));
  }
}

// What was right at the start and fails later is no fault of the job: it may be started again.
TEST_CASE("a file that cannot be read during the run is a failure, and no wrong configuration") {
  const ScratchFolder folder;
  const std::string path = folder / "text";
  write(path, std::string(100, 'x'));
  const TextData data(find_data_files(training_on(path, 99)), 99, 1);
  std::filesystem::remove(path);
  LastWords words;
  try {
    read(data, 0, 0, 1, 99);
  } catch (const std::exception& error) {
    describe(error, words);
  }
  CHECK(words.message == "training.data.path: cannot read " + path + ": No such file or directory");
  CHECK(words.exit_code == ExitCode::kFailure);
}
