#include "smp/planner/published/score.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

#include "files_and_errors.h"
#include "published/csv_reader.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/text/json.h"

// tests/golden/score/runs.csv holds made-up runs in the columns of published ones; runs.expected
// what is understood of them. SMP_UPDATE_GOLDEN=1 writes it anew.

using namespace smp;
using namespace smp::prediction;
using namespace smp::published;
using namespace smp::text;

namespace {

const std::string kRuns = SMP_SOURCE_DIR "/tests/golden/score/runs.csv";
const std::string kExpected = SMP_SOURCE_DIR "/tests/golden/score/runs.expected";
const char* const kHeader =
    "id,model,layers,hidden,heads,seq,gpus,gpu_type,tp,pp,dp,sharding,micro_batch,grad_accum,"
    "global_batch,recompute,precision";

FileScore golden() { return score_file(kRuns, std::nullopt); }

std::string quoted(const std::string& cell) {
  std::string doubled;
  for (char c : cell) doubled.append(c == '"' ? 2 : 1, c);
  return fmt::format("\"{}\"", doubled);
}

// The table with the cells of `columns` empty, or without those columns.
std::string without(const CsvTable& table, const std::set<std::string>& columns, bool blank) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells, bool head) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool gone = columns.count(table.columns[i]) > 0;
      if (gone && !blank) continue;
      if (!line.empty()) line += ',';
      if (!gone || head) line += quoted(cells[i]);
    }
    text += fmt::format("{}\n", line);
  };
  add(table.columns, true);
  for (const CsvRow& row : table.rows) add(row.cells, false);
  return text;
}

const RowScore& row_of(const FileScore& file, const std::string& id) {
  for (const RowScore& row : file.rows) {
    if (row.id == id) return row;
  }
  throw std::runtime_error(fmt::format("no row {}", id));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

RowScore score_one(const std::string& cells) {
  return score_table("t.csv", fmt::format("{}\n{}\n", kHeader, cells),
                     framework::framework_named("megatron-core"))
      .rows.at(0);
}

}  // namespace

TEST_CASE("score: what is understood of made-up runs") {
  std::string text;
  for (const RowScore& row : golden().rows) {
    text += fmt::format("{}: {}\n", row.id, row.expressible ? "expressible" : "not expressible");
    if (!row.reason.empty()) text += fmt::format("  {}\n", row.reason);
  }
  if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) std::ofstream(kExpected) << text;
  CHECK(text == text_of(kExpected));
}

TEST_CASE("score: predictions are finite, and lie within their ranges") {
  for (const RowScore& row : golden().rows) {
    if (!row.expressible) continue;
    CAPTURE(row.id);
    CHECK(std::isfinite(row.predicted_peak_gib));
    CHECK(row.predicted_peak_gib > 0.1);
    CHECK(row.low_gib <= row.predicted_peak_gib);
    CHECK(row.high_gib >= row.predicted_peak_gib);
    CHECK(std::isfinite(row.predicted_step_s));
    CHECK(row.predicted_step_s > 0);
    CHECK(row.step_low_s <= row.predicted_step_s);
    CHECK(row.step_high_s >= row.predicted_step_s);
  }
}

TEST_CASE("score: a prediction does not read what was measured") {
  const CsvTable table = load_csv(kRuns);
  const std::set<std::string> measured = {"fits", "tflops_per_gpu", "tokens_per_s_per_gpu",
                                          "step_time_s", "peak_mem_gb"};
  const FileScore with = golden();
  for (bool blank : {true, false}) {
    const FileScore other = score_table("t.csv", without(table, measured, blank), std::nullopt);
    REQUIRE(other.rows.size() == with.rows.size());
    for (size_t i = 0; i < with.rows.size(); ++i) {
      CAPTURE(with.rows[i].id);
      CHECK(other.rows[i].expressible == with.rows[i].expressible);
      CHECK(other.rows[i].reason == with.rows[i].reason);
      CHECK(other.rows[i].predicted_peak_gib == with.rows[i].predicted_peak_gib);
      CHECK(other.rows[i].predicted_step_s == with.rows[i].predicted_step_s);
      CHECK(other.rows[i].fit == with.rows[i].fit);
      CHECK(other.rows[i].low_gib == with.rows[i].low_gib);
      CHECK(other.rows[i].high_gib == with.rows[i].high_gib);
    }
  }
}

TEST_CASE("score: units and conventions of what was measured") {
  const FileScore file = golden();
  CHECK(*row_of(file, "plain").measured_peak_gib == doctest::Approx(18.5e9 / 1073741824.0));
  CHECK(*row_of(file, "sequence-parallel").measured_peak_gib == 20);
  CHECK(*row_of(file, "hybrid").measured_step_s == doctest::Approx(8192.0 / 6000));
  CHECK(row_of(file, "chunks").measured_step_s.has_value());  // from model flops
  CHECK(!row_of(file, "percent").measured_peak_gib.has_value());
  CHECK(*row_of(file, "offload").measured_fits == false);
  CHECK(row_of(file, "too-large").fit == Fit::kNo);
  CHECK(row_of(file, "doubted").left_out);
}

TEST_CASE("score: one framework model for all rows") {
  const FileScore inferred = golden();
  const FileScore fsdp = score_file(kRuns, framework::framework_named("fsdp2"));
  CHECK(row_of(inferred, "distributed-optimizer").predicted_peak_gib !=
        row_of(fsdp, "distributed-optimizer").predicted_peak_gib);
  CHECK(row_of(inferred, "hybrid").predicted_peak_gib == row_of(fsdp, "hybrid").predicted_peak_gib);
}

TEST_CASE("score: an unknown framework ranges over all that offer the row's layout") {
  const FileScore unknown = score_file(kRuns, framework::framework_named("unknown"));
  for (const char* name : {"megatron-core", "deepspeed", "nanotron"}) {
    const FileScore one = score_file(kRuns, framework::framework_named(name));
    const RowScore &own = row_of(one, "distributed-optimizer"),
                   &all = row_of(unknown, "distributed-optimizer");
    CHECK(all.low_gib <= own.low_gib);
    CHECK(all.high_gib >= own.high_gib);
    CHECK(all.step_low_s <= own.step_low_s);
    CHECK(all.step_high_s >= own.step_high_s);
    CHECK(all.reason.find(name) != std::string::npos);
  }
  const RowScore& row = row_of(unknown, "distributed-optimizer");
  CHECK(row.low_gib < row.predicted_peak_gib);
  CHECK(row.predicted_peak_gib < row.high_gib);
  CHECK(row_of(unknown, "too-large").fit == Fit::kNo);
  const std::string zero_bubble_less =
      "r,gpt,12,1024,16,1024,8,A100,1,8,1,zero3,4,2,8,none,bf16";  // fsdp2 and internevo alone
  CHECK(score_table("t.csv", std::string(kHeader) + "\n" + zero_bubble_less + "\n",
                    framework::framework_named("unknown"))
            .rows.front()
            .reason.ends_with("unknown framework: priced as fsdp2, internevo, torchtitan"));
  const auto refused = [](const std::string& cells) {
    return score_table("t.csv", fmt::format("{},cp,offload\n{}\n", kHeader, cells),
                       framework::framework_named("unknown"))
        .rows.front()
        .reason;
  };
  CHECK(refused("r,gpt,12,1024,16,1024,8,A100,1,1,4,zero1,4,2,32,full,bf16,2,activations") ==
        "no shipped framework offers the layout");
  CHECK(refused("r,gpt,12.5,1024,16,1024,8,A100,1,1,4,zero1,4,2,32,full,bf16,2,activations") ==
        "layers '12.5' is not understood");
}

TEST_CASE("score: cells that do not fit together, and such that say nothing") {
  CHECK(score_one("r,gpt,12,1024,16,1024,8,A100,1,1,,none,4,2,64,none,bf16").expressible);
  CHECK(score_one("r,gpt,12,1024,16,1024,8,A100,1,1,,none,4,2,64,none,bf16").reason ==
        "vocabulary of 50257");
  CHECK(score_one("r,gpt,0,1024,16,1024,8,A100,1,1,8,none,4,2,64,none,bf16").reason ==
        "layers is 0");
  CHECK(score_one("r,gpt,12,1024,16,1024,8,,1,1,8,none,4,2,64,none,bf16").reason ==
        "gpu_type is empty");
  CHECK(score_one("r,gpt,12.5,1024,16,1024,8,A100,1,1,8,none,4,2,64,none,bf16").reason ==
        "layers '12.5' is not understood");
  CHECK(score_one("r,gpt,12,1024,16,1024,8,A100,1,1,8,zero3,4,2,70,none,bf16").reason ==
        "vocabulary of 50257; batch of 96 = 4 x 3 x 8 instead of 70");
  CHECK(score_one("r,gpt,12,1024,16,8k,8,A100,1,1,8,none,1,1,8,none,bf16").expressible);
  CHECK(!score_one("r,gpt,12,1024,16,nan,8,A100,1,1,8,none,1,1,8,none,bf16").expressible);
  CHECK(!score_one("r,gpt,12,1024,16,-5,8,A100,1,1,8,none,1,1,8,none,bf16").expressible);
}

TEST_CASE("score: a row that names a published model has its shape from the table of models") {
  const auto row = [](const std::string& model, const std::string& shape = ",,") {
    return score_one("a," + model + "," + shape + ",4096,64,H100,1,1,64,fsdp,1,1,64,full,bf16");
  };
  const RowScore qwen = row("Qwen3_30B_a3B (tokendrop)");
  CHECK(qwen.expressible);
  CHECK(qwen.reason.starts_with("shape of qwen3-30b-a3b; vocabulary of 151936"));
  CHECK(row("llama3-8b", "32,4096,32").reason == "vocabulary of 128256");
  CHECK(row("nemotronh-8b").reason.starts_with("shape of nemotron-h-8b; "));
  CHECK(row("llama4_e16").reason.find("the vision tower's time is not priced") !=
        std::string::npos);
  CHECK(row("lama3-8b").reason ==
        "layers is empty: unknown model 'lama3-8b', did you mean 'llama3-8b' or 'neva-llama3-8b' "
        "or 'llama3.1-8b'? "
        "smp-plan models lists all models");
  CHECK(row("qwen3-next-80b-a3b").reason ==
        "model 'qwen3-next-80b-a3b' is known, but its layers of linear attention (gated delta "
        "nets) are not priced");
  // Cells win over the table.
  const RowScore halved = row("llama3-8b", "16,4096,32");
  CHECK(halved.predicted_peak_gib < row("llama3-8b").predicted_peak_gib);
}

TEST_CASE("score: a pattern of layers in the notes makes a hybrid") {
  const auto scored = [](const std::string& notes, const std::string& layers = "") {
    return score_table("t.csv",
                       fmt::format("{},notes\na,hybrid-1B,{},1024,16,1024,8,H100,1,1,8,none,4,1,32,"
                                   "none,bf16,{}\n",
                                   kHeader, layers, notes),
                       std::nullopt)
        .rows.at(0);
  };
  CHECK(scored("hybrid-layer-pattern=M-M-M-M*-|M-M-M*-").expressible);
  CHECK(
      scored("hybrid-layer-pattern=M-M/*").reason ==
      "notes: '/' in hybrid-layer-pattern=M-M/* is not understood; layers is empty: unknown model "
      "'hybrid-1b'. smp-plan models lists all models");
  CHECK(scored("hybrid-layer-pattern=M-M*", "5").reason ==
        "layers is 5, but hybrid-layer-pattern has 4 letters");
  CHECK(score_one("a,mamba-1B,12,1024,16,1024,8,H100,1,1,8,none,4,1,32,none,bf16").reason ==
        "model 'mamba-1B' has Mamba layers, and the row gives no hybrid-layer-pattern in notes");
}

TEST_CASE("score: notes set partitioned checkpoints and the framework model of a row") {
  const auto peak = [](const std::string& notes) {
    const std::string cells = "a,gpt-10B,40,4096,32,2048,16,A100,8,1,2,zero1,8,1,16,full,fp16";
    return score_table("t.csv",
                       fmt::format("{},source,notes\n{},DeepSpeed,\"{}\"\n", kHeader, cells, notes),
                       std::nullopt)
        .rows.at(0)
        .predicted_peak_gib;
  };
  CHECK(peak("--partition-activations") < 0.8 * peak(""));
  CHECK(peak("PA_CPU=N, ID=1") == peak("partitioned activations"));
  CHECK(peak("DS=N, ID=1") != peak("DS=Y, ID=1"));
  CHECK(peak("DS=Y, ID=1") == peak(""));
}

TEST_CASE("score: rows of adapters are priced as such, fine-tuning of all weights as training") {
  const FileScore file = golden();
  const auto peak = [&](const char* id) { return row_of(file, id).predicted_peak_gib; };
  // 16 GB of frozen weights, and full training's 6 bytes a parameter and 12 over 8 ranks.
  CHECK(peak("lora") > 15);
  CHECK(peak("lora") < 0.75 * peak("sft"));
  CHECK(row_of(file, "lora").reason.find("adapters of rank 8 on all linear layers") !=
        std::string::npos);
  CHECK(row_of(file, "lora-rank").reason.find("adapters") == std::string::npos);
  CHECK(row_of(file, "lora").fit == prediction::Fit::kFits);
}

TEST_CASE("score: tables that are none of published runs") {
  CHECK_THROWS_WITH_AS(score_table("t.csv", "id,key\n1,2\n", std::nullopt),
                       "t.csv:1:1: not a table of published runs: missing column model, layers, "
                       "hidden, heads, seq, gpus, gpu_type, tp, pp, dp, sharding, micro_batch, "
                       "grad_accum, global_batch, recompute, precision",
                       ConfigError);
  std::string header = kHeader;
  header.replace(header.find("micro_batch"), 11, "microbatch");
  CHECK_THROWS_WITH_AS(
      score_table("t.csv", fmt::format("{}\n", header), std::nullopt),
      "t.csv:1:1: not a table of published runs: missing column micro_batch ('microbatch'?)",
      ConfigError);
}

TEST_CASE("score: errors, ranking, regret and wrong fits of rows") {
  std::vector<RowScore> rows(4);
  const double predicted[] = {11, 18, 33, 36};
  const double measured[] = {10, 20, 30, 40};
  for (size_t i = 0; i < 4; ++i) {
    rows[i].expressible = true;
    rows[i].group.assign(1, 'g');
    rows[i].tokens_per_step = 1;
    rows[i].predicted_step_s = predicted[i];
    rows[i].measured_step_s = measured[i];
    rows[i].predicted_peak_gib = predicted[i];
    rows[i].measured_peak_gib = measured[i];
    rows[i].measured_fits = true;
    rows[i].fit = Fit::kFits;
  }
  rows[3].measured_fits = false;  // ran out of memory, and no peak of it is compared
  ScoreSummary summary = summary_of(rows);
  CHECK(summary.memory.rows == 3);
  CHECK(summary.memory.absolute_median == doctest::Approx(0.1));
  CHECK(summary.time.signed_median == doctest::Approx(0));
  CHECK(summary.time.absolute_p90 == doctest::Approx(0.1));
  CHECK(summary.ranked_pairs == 6);
  CHECK(summary.kendall_tau == 1);
  CHECK(summary.top_1_regret == 0);
  CHECK(summary.false_fits == 1);
  CHECK(summary.false_does_not_fit == 0);

  std::swap(rows[0].predicted_step_s, rows[1].predicted_step_s);
  rows[0].fit = Fit::kNo;
  rows[2].fit = Fit::kTight;
  rows[3].fit = Fit::kTight;
  summary = summary_of(rows);
  CHECK(summary.kendall_tau == doctest::Approx(4.0 / 6));
  CHECK(summary.top_1_regret == doctest::Approx(1.0));  // picked the run of 20 s, the best took 10
  CHECK(summary.false_fits == 0);
  CHECK(summary.false_does_not_fit == 1);
  CHECK(summary.tight_that_ran == 1);
}

TEST_CASE("score: runs of one layout that a table repeats are ranked once, at their mean") {
  std::vector<RowScore> rows(5);
  const double predicted[] = {10, 10, 20, 20, 30};
  const double measured[] = {12, 14, 11, 13, 40};
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].expressible = true;
    rows[i].group = "one model";
    rows[i].tokens_per_step = 1000;
    rows[i].predicted_step_s = predicted[i];
    rows[i].measured_step_s = measured[i];
  }
  const ScoreSummary summary = summary_of(rows);
  CHECK(summary.time.rows == 5);
  CHECK(summary.ranked_pairs == 3);  // of three layouts
  CHECK(summary.kendall_tau == doctest::Approx(1.0 / 3));
  CHECK(summary.groups == 1);
  CHECK(summary.top_1_regret == doctest::Approx(13.0 / 12 - 1));
}

TEST_CASE("score: what users do where a row says nothing") {
  const auto row = [](const char* framework, const char* gpus, const char* dp, const char* sharding,
                      const char* recompute) {
    return score_table(
               "t.csv",
               fmt::format(
                   "{}\n{}\n", kHeader,
                   fmt::format("a,llama-7b,32,4096,32,4096,{},H100,1,1,{},{},8,1,{},{},bf16", gpus,
                               dp, sharding, 8 * std::atoi(dp), recompute)),
               framework::framework_named(framework))
        .rows.at(0);
  };
  // 7 B parameters have 112 GB of states: of 8 ranks each holds its part.
  CHECK(contains(row("nemo", "8", "8", "", "full").reason, "sharded optimizer state, because"));
  CHECK(!contains(row("nemo", "8", "8", "none", "full").reason, "sharded optimizer state"));
  // Some layers of a stage, or all of them.
  const std::string some = row("nemo", "8", "8", "zero1", "").reason;
  CHECK(contains(some, "full recomputation of "));
  CHECK(contains(some, "of the 32 layers of a stage, because the run does not fit without it"));
  CHECK(contains(row("megatron-core", "8", "8", "zero1", "").reason,
                 "full recomputation, because the run does not fit without it"));
}

TEST_CASE("score: JSON has the names that other programs read") {
  const FileScore file = golden();
  const auto json = Json::parse(score_json({file}));
  REQUIRE(json.at("rows").size() == file.rows.size());
  for (const auto& row : json.at("rows")) {
    for (const char* key : {"id", "expressible", "reason", "predicted_peak_gib", "predicted_fits",
                            "predicted_step_s", "low", "high"}) {
      CHECK(row.contains(key));
    }
    CHECK(row.at("predicted_peak_gib").is_null() != row.at("expressible").get<bool>());
  }
  const auto& summary = json.at("summary");
  for (const char* key : {"n", "expressible_share", "memory", "time", "kendall_tau", "top_1_regret",
                          "false_fits", "false_does_not_fit"}) {
    CHECK(summary.contains(key));
  }
  CHECK(score_json({file}) == score_json({golden()}));
}
