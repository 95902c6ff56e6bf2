#include "smp/runtime/record/metrics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "scratch_folder.h"

using namespace smp;
using namespace smp::record;

namespace {

StepMetrics metrics_of(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.7312;
  metrics.grad_norm = 1.0449;
  metrics.learning_rate = 3e-4;
  metrics.tokens_per_s = 12345.6;
  metrics.step_s = 0.5;
  metrics.memory_live_bytes = 1000;
  metrics.memory_peak_bytes = 24536678;
  metrics.tokens_seen = 2048 * step;
  metrics.exposed_s = 0.01;
  return metrics;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string shown(int columns, int64_t steps, int64_t every, double step_s = 0.5) {
  const ScratchFolder folder;
  std::FILE* file = std::fopen((folder / "out").c_str(), "w");
  {
    StepLine line(file, steps, every, columns);
    for (int64_t step = 1; step <= steps; ++step) {
      StepMetrics metrics = metrics_of(step);
      metrics.step_s = step_s;
      line.show(metrics);
    }
  }
  std::fclose(file);
  return read_text(folder / "out");
}

}  // namespace

TEST_CASE("with fp16 the loss scale and the skipped steps are told") {
  StepMetrics metrics = metrics_of(3);
  metrics.loss_scale = 65536;
  metrics.skipped_steps = 2;
  CHECK(
      to_json(metrics).find(R"("learning_rate":0.0003,"loss_scale":65536.0,"skipped_steps":2,)") !=
      std::string::npos);
  CHECK(step_line(metrics, 3, 0) ==
        "step 3/3  loss 2.7312  grad norm 1.04  loss scale 65536, 2 skipped  12,346 tokens/s  "
        "memory 23.4 MiB");
}

TEST_CASE("where there was an evaluation, its loss and perplexity are told") {
  StepMetrics metrics = metrics_of(3);
  metrics.evaluation_loss = 2.0;
  CHECK(to_json(metrics).find(R"("evaluation_loss":2.0,"perplexity":7.38905609893065,)") !=
        std::string::npos);
  CHECK(step_line(metrics, 3, 0).find("norm 1.04  held out 2.0000, perplexity 7.389  12,346") !=
        std::string::npos);
}

TEST_CASE("epochs are told of each source, in the step line where there is more than one") {
  StepMetrics metrics = metrics_of(3);
  metrics.epochs = {{"corpus", 0.37}};
  CHECK(to_json(metrics).find(R"("tokens_seen":6144,"epochs":{"corpus":0.37},)") !=
        std::string::npos);
  CHECK(step_line(metrics, 3, 0) ==
        "step 3/3  loss 2.7312  grad norm 1.04  12,346 tokens/s  memory 23.4 MiB");
  metrics.epochs = {{"corpus", 1.375}};
  CHECK(step_line(metrics, 3, 0) ==
        "step 3/3  loss 2.7312  grad norm 1.04  12,346 tokens/s  epoch 1.38  memory 23.4 MiB");
  metrics.epochs = {{"wiki", 0.5}, {"code", 0.12}, {"books", 0.3}};
  CHECK(to_json(metrics).find(R"("epochs":{"wiki":0.5,"code":0.12,"books":0.3},)") !=
        std::string::npos);
  CHECK(step_line(metrics, 3, 0) ==
        "step 3/3  loss 2.7312  grad norm 1.04  12,346 tokens/s  epochs 0.12 to 0.50  "
        "memory 23.4 MiB");
}

TEST_CASE("metrics.jsonl holds one object a step") {
  const ScratchFolder folder;
  MetricsFile file(folder / "metrics.jsonl");
  file.append(metrics_of(1));
  file.append(metrics_of(2));
  const std::string line = R"({"step":1,"loss":2.7312,"grad_norm":1.0449,"learning_rate":0.0003,)"
                           R"("tokens_seen":2048,"tokens_per_s":12345.6,"step_s":0.5,)"
                           R"("exposed_s":0.01,)"
                           R"("memory_live_bytes":1000,"memory_peak_bytes":24536678})";
  const std::string text = read_text(folder / "metrics.jsonl");
  CHECK(text.substr(0, text.find('\n')) == line);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK_THROWS_WITH(MetricsFile("/nowhere/metrics.jsonl"),
                    "cannot write /nowhere/metrics.jsonl: No such file or directory");
}

TEST_CASE("a loss that is no number becomes null, so that the line stays JSON") {
  StepMetrics metrics = metrics_of(1);
  metrics.loss = std::nan("");
  CHECK(to_json(metrics).starts_with(R"({"step":1,"loss":null,)"));
}

TEST_CASE("the step line says step, loss, norm, speed, memory and time left") {
  CHECK(step_line(metrics_of(20), 200, 89.2) ==
        "step  20/200  loss 2.7312  grad norm 1.04  12,346 tokens/s  memory 23.4 MiB  90 s left");
  CHECK(step_line(metrics_of(200), 200, 0) ==
        "step 200/200  loss 2.7312  grad norm 1.04  12,346 tokens/s  memory 23.4 MiB");
  CHECK(step_line(metrics_of(1), 9, 150).ends_with("  2 min 30 s left"));
  CHECK(step_line(metrics_of(1), 9, 7500).ends_with("  2 h 05 min left"));
}

TEST_CASE("MFU is told where it is known, exposed communication where there is much of it") {
  StepMetrics metrics = metrics_of(20);
  metrics.mfu = 0.41231;
  metrics.exposed_s = 0.024;  // of 0.5
  CHECK(step_line(metrics, 200, 9) ==
        "step  20/200  loss 2.7312  grad norm 1.04  12,346 tokens/s  MFU 41.2 %  memory 23.4 MiB  "
        "9 s left");
  metrics.exposed_s = 0.04;
  CHECK(step_line(metrics, 200, 9) ==
        "step  20/200  loss 2.7312  grad norm 1.04  12,346 tokens/s  MFU 41.2 %  8 % exposed  "
        "9 s left");
  CHECK(to_json(metrics).find(R"("tokens_per_s":12345.6,"mfu":0.41231,"step_s":0.5,)") !=
        std::string::npos);
}

TEST_CASE("a step line keeps to 100 columns: memory goes first, then exposure, MFU, time left") {
  StepMetrics metrics = metrics_of(20);
  metrics.mfu = 0.4;
  metrics.exposed_s = 0.25;
  metrics.evaluation_loss = 2.0;
  CHECK(step_line(metrics, 200, 9) ==
        "step  20/200  loss 2.7312  grad norm 1.04  held out 2.0000, perplexity 7.389  12,346 "
        "tokens/s");
  metrics.evaluation_loss.reset();
  CHECK(step_line(metrics, 200, 7500) ==
        "step  20/200  loss 2.7312  grad norm 1.04  12,346 tokens/s  MFU 40.0 %  "
        "2 h 05 min left");
  metrics.loss_scale = 65536;
  CHECK(step_line(metrics, 200, 9) ==
        "step  20/200  loss 2.7312  grad norm 1.04  loss scale 65536, 0 skipped  12,346 tokens/s  "
        "9 s left");
}

TEST_CASE("in a file there is a line for the first, every n-th and the last step") {
  const std::string text = shown(0, 7, 3);
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.starts_with("step 1/7  loss"));
  CHECK(text.find("step 3/7") != std::string::npos);
  CHECK(text.find("step 4/7") == std::string::npos);
}

TEST_CASE("in a file no step is later than 30 s without a line") {
  const std::string text = shown(0, 7, 100, 11);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  for (const char* step : {"step 1/7", "step 4/7", "step 7/7"}) {
    CHECK(text.find(step) != std::string::npos);
  }
}

TEST_CASE("on a terminal one line is rewritten, and ended once") {
  const std::string text = shown(40, 7, 3);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(std::count(text.begin(), text.end(), '\r') == 7);
  CHECK(text.starts_with("\rstep 1/7  loss"));
  CHECK(text.find('\r', 1) == 40);  // the last column stays empty: a full line would wrap
  CHECK(text.back() == '\n');
}
