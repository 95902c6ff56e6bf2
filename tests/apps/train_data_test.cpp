#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "plan/data/corpus.h"
#include "program.h"
#include "smp/plan/text/json.h"
#include "tolerances.h"

// Token files from outside: what smp-launch shows of them, and that it is what ranks train on, in
// any layout and after a resume.

using namespace smp;
using namespace smp::text;
using corpus::Tokens;

namespace {

constexpr int64_t kLength = 32;  // tokens of a sample, as in the job file

// One that trains in milliseconds; its data are what a test writes.
constexpr const char* kJob = R"(model:
  family: gpt2
  num_layers: 2
  hidden_size: 32
  num_heads: 2
  vocab_size: 256
  max_positions: 32
cluster:
  hosts: 1
  processes_per_host: 4
  device: cpu
  memory_per_process: 64MiB
training:
  sequence_length: 32
  micro_batch: 1
  steps: 8
  optimizer: {learning_rate: 0.01}
)";

// 8 samples a step, in three layouts.
const std::vector<std::string> kOneRank = {"cluster.processes_per_host=1",
                                           "training.microbatches=8"};
const std::vector<std::string> kTensor = {"parallel.tensor_parallel_degree=2",
                                          "parallel.pipeline_parallel_degree=1",
                                          "training.microbatches=4"};
const std::vector<std::string> kPipeline = {
    "parallel.tensor_parallel_degree=1", "parallel.pipeline_parallel_degree=2",
    "parallel.shard_optimizer_state=true", "training.microbatches=4"};

// `count` documents of 1 to `most` tokens of a vocabulary of 256, whose next token is guessed
// better than by chance.
std::vector<Tokens> documents_of(int64_t count, int64_t most, uint64_t seed) {
  std::vector<Tokens> documents;
  const auto draw = [&](int64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(seed >> 33) % below;
  };
  for (int64_t i = 0; i < count; ++i) {
    Tokens document = {draw(256)};
    for (int64_t length = 1 + draw(most); static_cast<int64_t>(document.size()) < length;)
      document.push_back((document.back() + draw(4)) % 256);
    documents.push_back(document);
  }
  return documents;
}

// Every fifth stretch of the tokens counts: very uneven over samples.
std::string uneven_mask(size_t tokens) {
  std::string mask(tokens, '\0');
  for (size_t i = 0; i < tokens; ++i) mask[i] = i / 23 % 5 == 2 || i % 41 == 0 ? '\1' : '\0';
  return mask;
}

// A folder with files of tokens, plans and runs.
class TokenRuns {
 public:
  TokenRuns() { corpus::write_bytes(folder_ / "job.yaml", kJob); }

  std::string operator/(const std::string& name) const { return folder_ / name; }

  std::vector<Tokens> write(const std::string& name, int64_t documents, int64_t most, uint64_t seed,
                            bool masked = false) const {
    const std::vector<Tokens> written = documents_of(documents, most, seed);
    corpus::write_megatron16(folder_ / name, written);
    if (masked)
      corpus::write_bytes(folder_ / (name + ".mask.bin"),
                          uneven_mask(corpus::joined(written).size()));
    return written;
  }

  std::string plan(const std::string& name, const std::vector<std::string>& pins) const {
    std::vector<std::string> command = {SMP_PLAN, folder_ / "job.yaml", "-o", folder_ / name};
    for (const std::string& pin : pins) command.insert(command.end(), {"--set", pin});
    const ProgramEnd end = run_program(command);
    REQUIRE_MESSAGE(end.code == 0, end.err);
    return folder_ / name;
  }

  std::vector<Json> train(const std::string& run, const std::string& plan,
                          const std::vector<std::string>& words = {}) const {
    Program launched(joined(joined({SMP_LAUNCH}, words), {"--run-dir", folder_ / run, plan}));
    const ProgramEnd end = launched.wait(std::chrono::seconds(240));
    REQUIRE_MESSAGE(end.code == 0, end.err);
    return metrics(run);
  }
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> objects;
    std::istringstream text(read_file(folder_ / run + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) objects.push_back(Json::parse(line));
    return objects;
  }

 private:
  ScratchFolder folder_;
};

std::string shown(const std::string& plan, const std::string& steps) {
  const ProgramEnd end = run_program({SMP_LAUNCH, "--show-samples", steps, plan});
  CHECK(end.err == "");
  REQUIRE(end.code == 0);
  return end.out;
}

void check_same_losses(const std::vector<Json>& here, const std::vector<Json>& there) {
  REQUIRE(here.size() == there.size());
  for (size_t i = 0; i < here.size(); ++i) {
    CHECK(here[i].at("loss").get<double>() ==
          doctest::Approx(there[i].at("loss").get<double>()).epsilon(tolerance::kParityF32.loss));
  }
}

// The number behind a word of a line: "document 3" has 3.
int64_t number_behind(const std::string& line, const std::string& word) {
  const size_t at = line.find(word + " ");
  REQUIRE(at != line.npos);
  return std::stoll(line.substr(at + word.size() + 1));
}

}  // namespace

TEST_CASE("--show-samples prints source, document, offset and file of each sample of a mixture") {
  const TokenRuns runs;
  corpus::write_megatron16(runs / "a", {{1, 2, 3, 4, 5}, {6, 7}, {8, 9, 10, 11, 12, 13, 14}, {15}});
  corpus::write_bytes(runs / "b.npy",
                      corpus::npy("<u2", "(65,)", corpus::raw<uint16_t>(Tokens(65, 3))));
  const std::vector<std::string> pins = {
      "training.sequence_length=4",
      fmt::format("training.data.sources=[{{path: \"{}\", weight: 0.25}}, "
                  "{{path: \"{}\", weight: 0.75, name: bee}}]",
                  runs / "a", runs / "b.npy")};
  const std::string plan = runs.plan(
      "plan.yaml", joined(pins, {"cluster.processes_per_host=1", "training.microbatches=4"}));
  const std::string a = runs / "a", b = runs / "b.npy", npy = "  tokens 4  " + b + ", token ";
  const std::string step3 = "step 3  sample 0  source bee  epoch 0  offset 48" + npy + "48\n" +
                            "step 3  sample 1  source " + a +
                            "  epoch 0  document 0  offset 0  tokens 4  " + a +
                            ".bin, token 0: document 0, its token 0\n" +
                            "step 3  sample 2  source bee  epoch 0  offset 52" + npy + "52\n" +
                            "step 3  sample 3  source bee  epoch 0  offset 40" + npy + "40\n";
  CHECK(shown(plan, "2-3") ==
        "step 2  sample 0  source bee  epoch 0  offset 56" + npy + "56\n" +
            "step 2  sample 1  source " + a + "  epoch 0  document 0  offset 4  tokens 1  " + a +
            ".bin, token 4: document 0, its token 4\n" + "step 2  sample 1  source " + a +
            "  epoch 0  document 1  offset 0  tokens 2  " + a +
            ".bin, token 5: document 1, its token 0\n" + "step 2  sample 1  source " + a +
            "  epoch 0  document 2  offset 0  tokens 1  " + a +
            ".bin, token 7: document 2, its token 0\n" +
            "step 2  sample 2  source bee  epoch 0  offset 28" + npy + "28\n" +
            "step 2  sample 3  source bee  epoch 0  offset 24" + npy + "24\n" + step3);
  CHECK(shown(plan, "3") == step3);
  // In another layout, of a plan for hosts that are not there.
  const std::string far = runs.plan(
      "far.yaml",
      joined(pins, {"cluster.hosts=2", "training.microbatches=2",
                    "parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2"}));
  CHECK(shown(far, "3") == step3);
  CHECK(!std::filesystem::exists(runs / "runs"));
}

TEST_CASE("steps whose samples cannot be shown are refused") {
  const TokenRuns runs;
  runs.write("a", 40, 30, 1);
  const std::string plan =
      runs.plan("plan.yaml", joined(kOneRank, {"training.data.path=" + (runs / "a")}));
  const auto refused = [&](const std::vector<std::string>& words, int code) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH}, words));
    CHECK(end.code == code);
    CHECK(end.out == "");
    return end.err;
  };
  for (const char* steps :
       {"5-3", "0", "0-3", "x", "3-", "-3", "3-3-3", "3.5", " 3", "9999999999999999999999"}) {
    CHECK(refused({fmt::format("--show-samples={}", steps), plan}, 2) ==
          fmt::format("smp-launch: --show-samples '{}': expected steps from 1, as in "
                      "--show-samples 3-5 or --show-samples 3\nSee smp-launch --help.\n",
                      steps));
  }
  CHECK(refused({"--show-samples", "7-9", plan}, 3) ==
        "smp-launch: --show-samples 7-9: the plan has steps 1 to 8 (training.steps)\n");
  CHECK(refused({"--show-samples=3", "--dry-run", plan}, 2) ==
        "smp-launch: --show-samples starts nothing: leave --dry-run out\nSee smp-launch --help.\n");
  CHECK(refused({"--show-samples=3", "--", "true"}, 2) ==
        "smp-launch: --show-samples needs a plan\nSee smp-launch --help.\n");
  const ProgramEnd unheard =
      run_program({"/bin/sh", "-c", "exec " SMP_LAUNCH " --show-samples=1-8 " + plan + " >&-"});
  CHECK(unheard.code == 1);
  CHECK(unheard.err == "smp-launch: cannot write to standard output: Bad file descriptor\n");
  std::filesystem::remove(runs / "a.idx");
  CHECK(contains(refused({"--show-samples=3", plan}, 3),
                 "training.data.path: " + (runs / "a.bin") + " has neither an index ("));
}

// At a learning rate of 0 the loss of each document is that of an evaluation on it alone, and the
// loss of a step is the mean over the tokens of the documents that it shows.
TEST_CASE("the samples that are shown are those that ranks train on") {
  const TokenRuns runs;
  std::vector<std::string> sets;
  std::map<std::string, int64_t> counted;  // of each document, targets that count
  for (const std::string source : {"a", "b"}) {
    const std::vector<Tokens> documents = runs.write(source, 7, kLength, source[0], true);
    const std::string mask = uneven_mask(corpus::joined(documents).size());
    size_t begin = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string own = mask.substr(begin, documents[i].size());
      begin += own.size();
      const auto targets = std::count(own.begin() + 1, own.end(), '\1');
      if (targets == 0) continue;  // nothing to evaluate
      const std::string name = fmt::format("{}{}", source, i);
      counted[name] = targets;
      corpus::write_megatron16(runs / name, {documents[i]});
      corpus::write_bytes(runs / (name + ".mask.bin"), own);
      sets.push_back(fmt::format("{{name: {}, path: \"{}\"}}", name, runs / name));
    }
  }
  REQUIRE(sets.size() >= 8);
  const std::string plan = runs.plan(
      "plan.yaml",
      joined(kPipeline, {fmt::format("training.data.sources=[{{path: \"{}\", weight: 2, name: a}}, "
                                     "{{path: \"{}\", weight: 3, name: b}}]",
                                     runs / "a", runs / "b"),
                         "training.data.pack=pad", "training.data.loss_mask=true",
                         "training.optimizer.learning_rate=0", "training.evaluation.every_steps=8",
                         "training.evaluation.samples=1", "training.evaluation.pad_last_batch=true",
                         fmt::format("training.evaluation.sets=[{}]", fmt::join(sets, ", "))}));
  const std::vector<Json> metrics = runs.train("run", plan);
  REQUIRE(metrics.size() == 8);
  const Json& loss_of = metrics.back().at("evaluation_losses");
  CHECK(loss_of.size() == sets.size());
  std::map<int64_t, double> sums, targets;  // of each step
  std::istringstream lines(shown(plan, "1-8"));
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    const int64_t step = number_behind(line, "step");
    const std::string name = fmt::format("{}{}", contains(line, "source a ") ? "a" : "b",
                                         number_behind(line, "document"));
    seen.insert(name);
    if (counted.count(name) == 0) continue;
    const auto number = static_cast<double>(counted.at(name));
    sums[step] += number * loss_of.at(name).get<double>();
    targets[step] += number;
  }
  CHECK(seen.size() == 14);
  for (int64_t step = 1; step <= 8; ++step) {
    CHECK(metrics[static_cast<size_t>(step - 1)].at("loss").get<double>() ==
          doctest::Approx(sums[step] / targets[step]).epsilon(tolerance::kF32Loss));
  }
}

TEST_CASE("packed, padded and masked documents train alike on one rank and in each layout") {
  const TokenRuns runs;
  runs.write("corpus", 150, kLength, 3, true);
  const std::vector<std::vector<std::string>> forms = {
      {"training.data.pack=documents", "training.data.loss_mask=false"},
      {"training.data.pack=documents", "training.data.loss_mask=true"},
      {"training.data.pack=pad", "training.data.loss_mask=true"}};
  std::vector<std::vector<Json>> of_forms;
  for (const std::vector<std::string>& form : forms) {
    CAPTURE(form);
    std::vector<Json> first;
    std::string samples;
    for (const std::vector<std::string>& layout : {kOneRank, kTensor, kPipeline}) {
      CAPTURE(layout);
      const std::string name = fmt::format("{}", of_forms.size()) + layout[0];
      const std::string plan = runs.plan(
          "plan.yaml", joined(joined(layout, form), {"training.data.path=" + (runs / "corpus")}));
      const std::vector<Json> metrics = runs.train(name, plan);
      const std::string here = shown(plan, "1-8");
      if (first.empty()) {
        first = metrics;
        samples = here;
      }
      CHECK(here == samples);
      check_same_losses(metrics, first);
    }
    of_forms.push_back(first);
  }
  CHECK(of_forms[0].back().at("loss") < of_forms[0].front().at("loss"));
  // They are three trainings.
  CHECK(of_forms[0][0].at("loss") != of_forms[1][0].at("loss"));
  CHECK(of_forms[1][0].at("loss") != of_forms[2][0].at("loss"));
}

TEST_CASE("a mixture that is stopped goes on in another layout with the same samples and losses") {
  const TokenRuns runs;
  runs.write("a", 150, 50, 5, true);
  runs.write("b", 40, 20, 6, true);
  const std::vector<std::string> data = {
      fmt::format("training.data.sources=[{{path: \"{}\", weight: 0.7}}, "
                  "{{path: \"{}\", weight: 0.3}}]",
                  runs / "a", runs / "b"),
      "training.data.pack=documents",
      "training.data.loss_mask=true",
      "training.data.split=[8, 2, 0]",
      "training.evaluation.every_steps=4",
      "training.checkpoint.every_steps=3"};
  const std::string whole = runs.plan("whole.yaml", joined(kOneRank, data));
  const std::string first = runs.plan("first.yaml", joined(kTensor, data));
  const std::string second = runs.plan("second.yaml", joined(kPipeline, data));
  const std::vector<Json> undisturbed = runs.train("whole", whole);
  // The save of step 6 waits for that of step 3, which is whole then.
  Program stopped({SMP_LAUNCH, "--run-dir", runs / "run", first},
                  {"SMP_FAULT=rank=1,step=7,kind=exit3"});
  CHECK(stopped.wait(std::chrono::seconds(240)).code == 3);
  CHECK(runs.metrics("run").size() == 6);
  const std::vector<Json> resumed = runs.train("run", second, {"--resume"});
  check_same_losses(resumed, undisturbed);
  CHECK(resumed.back().at("evaluation_loss").get<double>() ==
        doctest::Approx(undisturbed.back().at("evaluation_loss").get<double>())
            .epsilon(tolerance::kParityF32.loss));
  const std::string samples = shown(whole, "1-8");
  CHECK(shown(first, "1-8") == samples);
  CHECK(shown(second, "1-8") == samples);
  CHECK(contains(samples, "source " + (runs / "b") + "  epoch 1  "));  // an order of its own
}

TEST_CASE("several evaluation sets: each is named, and the first says which checkpoint is best") {
  const TokenRuns runs;
  runs.write("train", 200, kLength, 7);
  runs.write("code", 40, kLength, 8);
  corpus::write_bytes(runs / "wiki.bin",
                      corpus::llmc(corpus::joined(documents_of(60, kLength, 9)), false));
  const std::string plan = runs.plan(
      "plan.yaml",
      joined(kTensor,
             {"training.data.path=" + (runs / "train"),
              fmt::format("training.evaluation.sets=[{{name: code, path: \"{}\"}}, "
                          "{{name: wiki, path: \"{}\"}}]",
                          runs / "code", runs / "wiki.bin"),
              "training.evaluation.every_steps=2", "training.evaluation.keep_best=true",
              // The lowest loss comes first: what follows overshoots.
              "training.optimizer.learning_rate=10", "training.optimizer.warmup_steps=8"}));
  const std::vector<Json> metrics = runs.train("run", plan);
  REQUIRE(metrics.size() == 8);
  double best = 1e9;
  int64_t best_step = 0;
  for (const Json& line : metrics) {
    const auto step = line.at("step").get<int64_t>();
    CHECK(line.contains("evaluation_losses") == (step % 2 == 0));
    if (step % 2 != 0) continue;
    const Json& losses = line.at("evaluation_losses");
    CHECK(losses.size() == 2);
    CHECK(losses.at("wiki") != losses.at("code"));
    CHECK(losses.at("code") == line.at("evaluation_loss"));
    if (losses.at("code").get<double>() < best) {
      best = losses.at("code").get<double>();
      best_step = step;
    }
  }
  CHECK(best_step < 8);
  CHECK(contains(read_file(runs / "run/checkpoints/best"), fmt::format("step-{:08}", best_step)));
  CHECK(std::filesystem::exists(runs / fmt::format("run/checkpoints/step-{:08}", best_step)));
  const Json report = Json::parse(read_file(runs / "run/report.json"));
  CHECK(report.at("evaluation").at("best").at("step") == best_step);
  CHECK(report.at("evaluation").at("best").at("loss") == best);
}

TEST_CASE("a mask beside the tokens is asked about before anything starts") {
  const TokenRuns runs;
  runs.write("corpus", 150, kLength, 3, true);
  const std::string plan =
      runs.plan("plan.yaml", joined(kOneRank, {"training.data.path=" + (runs / "corpus")}));
  for (const char* how : {"--dry-run", "--show-samples=1", "--timeout=100s"}) {
    const ProgramEnd end = run_program({SMP_LAUNCH, how, plan});
    CHECK(end.code == 3);
    CHECK(contains(end.err, "training.data.loss_mask: " + (runs / "corpus.mask.bin") +
                                " is a mask for " + (runs / "corpus.bin") +
                                ", but the job does not set the key: write loss_mask: true to use "
                                "the mask, or loss_mask: false to count all tokens"));
  }
}

// Hosts whose file systems differ: b has other folders in the same places. Elsewhere than as root
// nobody may lay one folder over another.
TEST_CASE("hosts that lack a part of named data do not train, and are named") {
  if (run_program({"/bin/sh", "-c", "unshare -m true"}).code != 0) {
    MESSAGE("skipped: unshare -m needs root");
    return;
  }
  const TokenRuns runs;
  const auto train = [&](const std::string& of_b, const std::vector<std::string>& pins) {
    const std::string plan = runs.plan("plan.yaml", joined(kTensor, pins));
    // As host b: `of_b` lies over the folder "data".
    const ProgramEnd end =
        run_program({SMP_LAUNCH, "--hosts", "a:2,b:2", "--run-dir", runs / "run", "--via",
                     "exec:if [ \"$SMP_HOST\" = b ]; then exec unshare -m sh -c 'mount --bind " +
                         (runs / of_b) + " " + (runs / "data") +
                         " && exec \"$SMP_AGENT\" --agent'; else exec \"$SMP_AGENT\" --agent; fi",
                     plan});
    INFO(end.err);
    CHECK(!std::filesystem::exists(runs / "run/metrics.jsonl"));
    std::filesystem::remove_all(runs / "run");
    return end;
  };
  const auto fill = [&](const std::string& folder) {
    std::filesystem::create_directories(runs / folder);
    runs.write(folder + "/x", 40, 40, 1);
    runs.write(folder + "/y", 40, 40, 2);
  };
  fill("data");
  const std::string prefix = "training.data.path=" + (runs / "data/y");
  const std::string glob = "training.data.path=" + (runs / "data/*.bin");
  const std::string sources = fmt::format(
      "training.data.sources=[{{path: \"{}\", weight: 1}}, {{path: \"{}\", weight: "
      "1}}]",
      runs / "data/x", runs / "data/y");

  fill("no-y");
  std::filesystem::remove(runs / "no-y/y.bin");
  std::filesystem::remove(runs / "no-y/y.idx");
  for (const std::string& pin : {prefix, sources}) {
    CAPTURE(pin);
    const ProgramEnd end = train("no-y", {pin});
    CHECK(end.code == 125);
    CHECK(contains(end.err, "  host b: it cannot read '" + (runs / "data/y.bin") +
                                "' of the launching host (No "));
  }
  const ProgramEnd fewer = train("no-y", {glob});
  CHECK(fewer.code == 3);
  CHECK(contains(fewer.err, "  ranks 2 to 3 on b: training.data.path, y.bin: none; rank 0 on a: "));

  fill("no-index");
  std::filesystem::remove(runs / "no-index/y.idx");
  for (const std::string& pin : {prefix, sources}) {
    CAPTURE(pin);
    const ProgramEnd end = train("no-index", {pin});
    CHECK(end.code == 125);
    CHECK(contains(end.err, "  host b: it cannot read '" + (runs / "data/y.idx") +
                                "' of the launching host (No "));
  }
  const ProgramEnd unknown = train("no-index", {glob});
  CHECK(unknown.code == 3);
  CHECK(contains(unknown.err, " on host b ended with exit code 3, "));
  CHECK(contains(unknown.err, (runs / "data/y.bin") + " has neither an index ("));

  fill("other-y");
  corpus::write_megatron16(runs / "other-y/y", documents_of(40, 40, 3));
  for (const std::string& pin : {prefix, glob, sources}) {
    CAPTURE(pin);
    const ProgramEnd end = train("other-y", {pin});
    CHECK(end.code == 3);
    CHECK(contains(end.err, "  ranks 2 to 3 on b: training.data.path, "));
    CHECK(contains(end.err, "y.bin: 1612 bytes (sampled content "));
    CHECK(contains(end.err, "; rank 0 on a: 1720 bytes (sampled content "));
  }

  // What is evaluated on is compared too, and so is what counts in the loss.
  const std::string x = "training.data.path=" + (runs / "data/x");
  const ProgramEnd set =
      train("other-y",
            {x, "training.evaluation.every_steps=4",
             fmt::format("training.evaluation.sets=[{{name: y, path: \"{}\"}}]", runs / "data/y")});
  CHECK(set.code == 3);
  CHECK(contains(set.err, "  ranks 2 to 3 on b: training.evaluation.sets, "));
  CHECK(contains(set.err, "y.bin: 1612 bytes (sampled content "));
  const std::string mask(860, '\1');
  corpus::write_bytes(runs / "data/y.mask.bin", mask);
  std::filesystem::create_directories(runs / "other-mask");
  for (const char* name : {"y.bin", "y.idx"})
    std::filesystem::copy_file(runs / ("data/" + std::string(name)),
                               runs / ("other-mask/" + std::string(name)));
  corpus::write_bytes(runs / "other-mask/y.mask.bin", '\0' + mask.substr(1));
  const ProgramEnd masked = train("other-mask", {prefix, "training.data.loss_mask=true"});
  CHECK(masked.code == 3);
  CHECK(contains(masked.err, "  ranks 2 to 3 on b: training.data.path, "));
  CHECK(contains(masked.err, "y.mask.bin: 860 bytes (sampled content "));
  corpus::write_bytes(runs / "no-index/y.idx", read_file(runs / "data/y.idx"));
  CHECK(contains(
      train("no-index", {prefix, "training.data.loss_mask=true"}).err,
      "  host b: it cannot read '" + (runs / "data/y.mask.bin") + "' of the launching host (No "));
}
