#include "training/rank_agreement.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>

#include "files_and_errors.h"
#include "runtime/huggingface_golden.h"
#include "runtime/short_runs.h"
#include "runtime/state_weights_folder.h"
#include "smp/plan/base/errors.h"

// Ranks that are not alike: what each holds is compared before anything is trained.
namespace smp {
namespace {

using parity::LayoutCase;

// What every rank says, each holding what `held` gives; the same, or the test fails.
std::string said_by_all(int ranks,
                        const std::function<std::vector<training::AgreedValue>(int)>& held) {
  std::mutex mutex;
  std::vector<std::string> texts;
  jobs::run_ranks(ranks, [&](comm::Communicator& world) {
    const std::string host = std::string(1, static_cast<char>('a' + world.rank() / 2));
    const std::string text = error_of(
        [&] { training::check_ranks_agree(world, host, held(world.rank()), "setup.same"); });
    const std::scoped_lock lock(mutex);
    texts.push_back(text);
  });
  CHECK(std::count(texts.begin(), texts.end(), texts.front()) == ranks);
  return texts.front();
}

// The ConfigError of two ranks, which both must have, or "no error".
std::string train_of_two(
    const std::function<void(comm::Communicator&, const training::TrainOptions&)>& program) {
  std::mutex mutex;
  std::vector<std::string> texts;
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    training::TrainOptions options = test::options_of("", 1);
    options.threads = 1;
    options.host = world.rank() == 0 ? "a" : "b";
    std::string text = "no error";
    try {
      program(world, options);
    } catch (const ConfigError& error) {
      text = error.what();
    }
    const std::scoped_lock lock(mutex);
    texts.push_back(text);
  });
  CHECK(texts.front() == texts.back());
  return texts.front();
}

// Each rank with a working folder of its own, in which the plan's relative paths lead elsewhere.
std::string trained_apart(const Plan& plan, const ScratchFolder& folder) {
  return train_of_two([&](comm::Communicator& world, const training::TrainOptions& options) {
    REQUIRE(unshare(CLONE_FS) == 0);
    REQUIRE(chdir((folder / std::to_string(world.rank())).c_str()) == 0);
    training::train(plan, world, options);
  });
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("ranks that hold the same go on: others are named with their hosts, and what they hold") {
  const training::AgreedValue plan{"the plan", "1f"}, file{"a.txt", "18000 bytes"};
  CHECK(said_by_all(4, [&](int) { return std::vector{plan, file}; }) == "no error");
  const std::string head =
      "the ranks differ in what they would train with, so the result would be wrong:\n";
  const std::string end =
      "\n  copy the same files to every host, or name files in a file system that all hosts share";
  CHECK(
      said_by_all(6, [&](int rank) {
        return std::vector{plan, rank >= 4 ? training::AgreedValue{"a.txt", "18003 bytes"} : file};
      }) == head + "  ranks 4 to 5 on c: a.txt: 18003 bytes; rank 0 on a: 18000 bytes" + end);
  // What most hold is what the others should: it is rank 0 that has another.
  CHECK(said_by_all(3, [&](int rank) {
          return rank == 0 ? std::vector{plan} : std::vector{plan, file};
        }) == head + "  rank 0 on a: a.txt: none; rank 1 on a: 18000 bytes" + end);
  const training::AgreedValue more{"b.txt", "1 bytes"};
  CHECK(said_by_all(3, [&](int rank) {
          return rank == 2 ? std::vector{plan, file, more} : std::vector{plan, file};
        }) == head + "  rank 2 on b: b.txt: 1 bytes; rank 0 on a: none" + end);
}

TEST_CASE("files of another size, or of other bytes, are no same files") {
  const ScratchFolder folder;
  put(folder / "a", "some text"), put(folder / "b", "some Text"), put(folder / "c", "some text");
  const auto held = [&](const std::string& name) {
    files::FileIdentity file = files::identify_file(folder / name);
    file.name = "a.txt";
    std::vector<training::AgreedValue> all;
    training::add_files(all, "training.data.path", {file});
    return all;
  };
  CHECK(said_by_all(2, [&](int rank) { return held(rank == 0 ? "a" : "c"); }) == "no error");
  const std::string text = said_by_all(2, [&](int rank) { return held(rank == 0 ? "a" : "b"); });
  CHECK(text.find("rank 1 on a: training.data.path, a.txt: 9 bytes (sampled content ") !=
        text.npos);
}

// Each stage of a pipeline reads its own end of the samples: tokens here, targets there.
TEST_CASE(
    "ranks that see other data, or other weights to start from, under the same path do not train") {
  const ScratchFolder folder;
  const std::string text = parity::sample_text(4000);
  const std::string weights = test::golden_folder(test::kGoldenModels[0]);
  for (const std::string host : {"/0", "/1"}) {
    std::filesystem::create_directories(folder.path() + host);
    put(folder.path() + host + "/text.txt", text);
    std::filesystem::copy(weights, folder.path() + host + "/weights");
  }
  const ModelSpec model = test::model_of_folder(weights);
  Plan plan =
      parity::plan_of(model, LayoutCase{"p2", {.pipeline = 2}}, Precision::kFp32, "text.txt");
  plan.job.training.init_from = "weights";
  plan.job.training.data_tokens = TokenKind::kBytes;
  CHECK(trained_apart(plan, folder) == "no error");
  put(folder / "1/text.txt", text + "abc");
  CHECK(trained_apart(plan, folder)
            .find("\n  rank 1 on b: training.data.path, text.txt: 4003 bytes (sampled content ") !=
        std::string::npos);
  put(folder / "1/text.txt", text);
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(weights)) {
    const std::string file = entry.path().filename();
    if (file.starts_with("model") && file.ends_with(".safetensors")) name = file;
  }
  const std::string path = folder / ("1/weights/" + name);
  std::string bytes = text_of(path);
  bytes.back() ^= 1;
  put(path, bytes);
  CHECK(trained_apart(plan, folder).find("\n  rank 1 on b: training.init_from, " + name + ": ") !=
        std::string::npos);
}

TEST_CASE("ranks with another plan do not train") {
  const test::ShortRuns runs;
  const Plan plan = runs.plan(LayoutCase{"p2", {.pipeline = 2}});
  const std::string text =
      train_of_two([&](comm::Communicator& world, const training::TrainOptions& options) {
        Plan mine = plan;
        if (world.rank() == 1) mine.job.training.seed = 99;
        training::train(mine, world, options);
      });
  CHECK(text.find("\n  rank 1 on b: the plan: ") != text.npos);
}

}  // namespace smp
