#include "published/published_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "smp/plan/framework/framework_catalog.h"

namespace smp::published {
namespace {

// For a run of which only its speed is published: enough that each GPU holds a small share.
constexpr int64_t kUnpublishedGpus = 256;

struct PublishedDegrees {
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1, data = 1;
  int64_t world() const { return tensor * pipeline * context * data; }
};

// Ranks of the largest runs, with room; four of these multiply within 64 bits.
constexpr int64_t kMostRanks = 1 << 15;
constexpr int64_t kMostWorld = 1 << 20;

std::optional<int64_t> ranks_of(RunCells& cells, const char* column) {
  const auto value = cells.degree(column);
  if (!value || *value <= kMostRanks) return value;
  cells.problem(fmt::format("{} is {}: more ranks than any run has", column, *value));
  return std::nullopt;
}

// tp x pp x cp x dp = gpus gives the one that is missing.
PublishedDegrees degrees_of(RunCells& cells, PublishedRun& run) {
  PublishedDegrees degrees;
  const auto tensor = ranks_of(cells, "tp");
  const auto pipeline = ranks_of(cells, "pp");
  const auto context = ranks_of(cells, "cp");
  const auto data = ranks_of(cells, "dp");
  const auto gpus = ranks_of(cells, "gpus");
  run.layout_is_published = tensor || pipeline || data || cells.has("micro_batch");
  degrees.tensor = tensor.value_or(1);
  degrees.pipeline = pipeline.value_or(1);
  degrees.context = context.value_or(1);
  degrees.expert = ranks_of(cells, "ep").value_or(1);
  const int64_t model = degrees.tensor * degrees.pipeline * degrees.context;
  if (data) {
    degrees.data = *data;
  } else if (gpus) {
    degrees.data = std::max<int64_t>(1, *gpus / model);
  } else {
    const int64_t all =
        run.layout_is_published ? cells.degree("gpus_per_node").value_or(8) : kUnpublishedGpus;
    degrees.data = std::max<int64_t>(1, all / model);
    cells.assume(fmt::format("{} GPUs", degrees.world()));
  }
  if (gpus && degrees.expert > 1 && degrees.world() * degrees.expert == *gpus) {
    degrees.data *= degrees.expert;  // some count data-parallel ranks of each expert alone
  }
  if (gpus && degrees.world() != *gpus) {
    if (data && *gpus % model == 0 && !tensor) {
      degrees.tensor = *gpus / (*data * degrees.pipeline * degrees.context);
    }
    if (degrees.world() != *gpus) {
      cells.assume(fmt::format("{} GPUs are not tp {} x pp {} x cp {} x dp {}: priced on {}", *gpus,
                               degrees.tensor, degrees.pipeline, degrees.context, degrees.data,
                               degrees.world()));
    }
  }
  if (degrees.world() > kMostWorld) {
    cells.problem(
        fmt::format("tp x pp x cp x dp = {}: more ranks than any run has", degrees.world()));
    return {};
  }
  return degrees;
}

Precision precision_of(RunCells& cells, bool has_bf16) {
  const std::string word = cells.word("precision");
  if (contains(word, "fp4")) return Precision::kNvfp4;
  if (contains(word, "fp8") || contains(word, "float8") || contains(word, "mxfp8")) {
    return Precision::kFp8;
  }
  if (word == "bf16" || word == "bfloat16" || word == "bf16-mixed" || word == "amp bf16" ||
      word == "amp_bf16" || word == "mixed" || word == "bf16 mixed") {
    return Precision::kBf16;
  }
  if (word == "fp16" || word == "float16" || word == "half" || word == "fp16 mixed" ||
      word == "16-mixed" || word == "amp" || word == "amp_fp16") {
    return Precision::kFp16;
  }
  if (word == "fp32" || word == "float32" || word == "tf32" || word == "32")
    return Precision::kFp32;
  if (!word.empty()) cells.not_understood("precision");
  return has_bf16 ? Precision::kBf16 : Precision::kFp16;
}

AttentionKind attention_of(RunCells& cells, const PublishedRun& run) {
  std::string word = cells.word("attention");
  if (word.empty()) word = lower_case(cells.note("attention-backend").value_or(""));
  if (word.empty() || word == "auto") {
    if (lower_case(cells.note("transformer-impl").value_or("")) == "local") {
      return AttentionKind::kUnfused;
    }
    // Megatron's earlier long-term container has no deterministic flash attention on A100.
    if (cells.mentions("lts_dgxa100") && cells.has_note("deterministic-mode")) {
      return AttentionKind::kUnfused;
    }
    // Before flash attention: the fp16 runs of Megatron, DeepSpeed and SMP v1, and MT-NLG.
    const bool early = run.choice.precision == Precision::kFp16 || cells.mentions("mt-nlg");
    return early ? AttentionKind::kUnfused : AttentionKind::kFlash;
  }
  if (contains(word, "unfused") || word == "local" || word == "eager" || word == "math" ||
      word == "torch" || word == "core" || word == "standard" || word == "no" || word == "none") {
    return AttentionKind::kUnfused;
  }
  if (contains(word, "flash") || contains(word, "fused") || contains(word, "sdpa") ||
      contains(word, "flex") || contains(word, "triton") || contains(word, "mem_efficient") ||
      contains(word, "cudnn") || contains(word, "te") || word == "yes") {
    return AttentionKind::kFlash;
  }
  cells.not_understood("attention");
  return AttentionKind::kFlash;
}

bool partitions_activations(RunCells& cells) {
  for (const char* words : {"partition-activations", "partition_activations",
                            "partitioned activations", "distribute-saved-activations"}) {
    if (cells.mentions(words)) return true;
  }
  // The scripts of BigScience's ZeRO-3 runs pass --partition-activations.
  if (!cells.mentions("deepspeed zero (old branch)") && !cells.mentions("pa_cpu=")) return false;
  cells.assume("checkpoints partitioned over the tensor group");
  return true;
}

// Of one step, as the table's convention counts them; 0 = not known.
double counted_flops(RunCells& cells, const PublishedRun& run, double tokens, double model_flops) {
  const std::string convention = cells.word("flops_convention");
  const ModelSpec& model = run.job.model;
  const double h = double(model.hidden_size);
  const double layers = double(model.num_layers);
  const double s = double(run.job.training.sequence_length);
  const double v = double(model.vocab_size);
  const double parameters = cells.number("params_b").value_or(12e-9 * layers * h * h) * 1e9;
  if (contains(convention, "8*p*tokens")) return 8 * parameters * tokens;
  if (contains(convention, "6*p*tokens")) return 6 * parameters * tokens;
  if (contains(convention, "96bslh")) {
    return 96 * tokens * layers * h * h * (1 + s / (6 * h) + v / (16 * layers * h));
  }
  if (contains(convention, "model flops") || contains(convention, "mfu")) return model_flops;
  return 0;
}

}  // namespace

PublishedRun published_run(RunCells& cells, KnownClusters& clusters,
                           const FrameworkChoice& framework) {
  PublishedRun run;
  const PublishedDegrees degrees = degrees_of(cells, run);
  JobSpec& job = run.job;
  job.name = cells.text("id");
  job.parallel.framework = framework;
  const framework::UsualSettings& usual = framework::framework_of(job).usual;
  job.model = model_of_run(cells, usual, degrees.pipeline);
  job.cluster = cluster_of_run(cells, clusters, degrees.world());
  job.training.sequence_length = cells.degree("seq").value_or(0);
  if (job.training.sequence_length == 0) {
    job.training.sequence_length = cells.mentions("llama2") ? 4096 : 2048;
    cells.assume(fmt::format("sequence of {}", job.training.sequence_length));
  }
  job.model.max_positions =
      cells.note_count("max-position-embeddings").value_or(job.training.sequence_length);

  choice::LayoutChoice& choice = run.choice;
  choice.tensor = static_cast<int32_t>(degrees.tensor);
  choice.pipeline = static_cast<int32_t>(degrees.pipeline);
  choice.context = static_cast<int32_t>(degrees.context);
  choice.expert = static_cast<int32_t>(degrees.expert);
  choice.expert_tensor =
      static_cast<int32_t>(cells.note_count("expert-tensor-parallel-size")
                               .value_or(cells.number_after("etp ").value_or(degrees.tensor)));
  choice.precision = precision_of(cells, job.cluster.has_bf16);
  job.training.precision = choice.precision;
  job.training.attention = attention_of(cells, run);
  job.training.fused_loss = cells.has_note("cross-entropy-loss-fusion");
  const std::string precision = cells.word("precision");
  if (contains(precision, "cs") || contains(precision, "current")) {
    job.training.fp8_recipe = Fp8Recipe::kCurrent;
  } else if (contains(precision, "mx")) {
    job.training.fp8_recipe = Fp8Recipe::kMxfp8;
  } else if (contains(precision, "block") || contains(precision, "subchannel")) {
    job.training.fp8_recipe = Fp8Recipe::kBlockwise;
  }
  job.training.fp8_parameters = cells.has_note("fp8-param-gather") || usual.fp8_parameters;
  if (usual.remainder_master_weights && choice.precision == Precision::kBf16) {
    job.training.optimizer.master_weights = MasterKind::kRemainder;
  }
  job.training.deterministic = cells.has_note("deterministic-mode");
  if (cells.mentions("llm-foundry")) job.training.fused_loss = true;  // its loss_fn's default
  if (cells.mentions("internevo")) {  // hybrid_zero_optim.py: 16-bit sums, torch.optim's Adam
    job.training.accumulate_gradients_in_fp32 = false;
    job.training.fused_optimizer = false;
  }
  // torchtitan compiles the loss since 2025 (components/loss.py).
  if (cells.mentions("torchtitan") && cells.mentions("2025")) job.training.fused_loss = true;
  const std::string compile = cells.word("compile");
  job.training.compiled = compile.empty() ? cells.mentions("torch.compile")
                                          : compile != "no" && compile != "none" &&
                                                compile != "false" && compile != "eager";
  choice.sequence_parallel =
      degrees.tensor > 1 && cells.yes_or_no("sp").value_or(usual.sequence_parallel);
  read_fine_tuning(cells, run);
  read_layout(cells, run, degrees.data);
  job.parallel.partition_activations = partitions_activations(cells);
  if (cells.problems.empty() &&
      degrees.pipeline * choice.virtual_stages > job.model.num_layers + 2) {
    cells.problem(fmt::format("pp {} x vpp {} is more than {} layers", degrees.pipeline,
                              choice.virtual_stages, job.model.num_layers));
  }
  for (const char* optimizer : {"muon", "lion", "sgd", "adafactor", "shampoo"}) {
    if (lower_case(cells.note("optimizer").value_or("")) == optimizer) {
      cells.assume(fmt::format("states of Adam, not of {}", optimizer));
    }
  }
  run.sharding_is_published = cells.has("sharding");
  // A 0 in NeMo's table of recipes leaves recomputation as the recipe has it (set_recompute_configs
  // of its performance scripts), which the table does not say.
  const bool recipes_own = cells.mentions("expert-tuned") && choice.recompute == Recompute::kNone;
  run.recompute_is_published = cells.has("recompute") && !recipes_own;
  run.figure = figure_of(cells);
  run.left_out = cells.mentions("exclude from scoring") || cells.mentions("suspect copy") ||
                 cells.mentions("treat as suspect");
  return run;
}

Measurement measurement_of(RunCells& cells, const PublishedRun& run, double model_flops) {
  Measurement measured;
  if (const auto peak = cells.number("peak_mem_gb")) {
    const std::string unit = cells.word("mem_unit");
    // The bars of 2205.05198 are drawn in GiB: 18 B a parameter of the blocks, to three digits.
    const bool drawn = run.figure == MemoryFigure::kStatesFirstStage;
    const bool decimal = !drawn && (unit == "gb" || unit.empty());
    const bool mebi = unit == "mib";
    if (decimal || mebi || drawn || unit == "gib") {
      measured.peak_gib = *peak * (decimal ? 1e9 / 1073741824.0 : mebi ? 1 / 1024.0 : 1.0);
    }
  }
  measured.fits = cells.yes_or_no("fits");
  const choice::LayoutChoice& choice = run.choice;
  const double tokens = double(choice.data()) * choice.micro_batch * choice.microbatches *
                        double(run.job.training.sequence_length);
  if (const auto step = cells.number("step_time_s"); step && *step > 0) {
    measured.step_s = *step;
  } else if (const auto rate = cells.number("tokens_per_s_per_gpu"); rate && *rate > 0) {
    measured.step_s = tokens / (*rate * double(choice.world()));
  } else if (const auto tflops = cells.number("tflops_per_gpu"); tflops && *tflops > 0) {
    const double flops = counted_flops(cells, run, tokens, model_flops);
    if (flops > 0) measured.step_s = flops / (*tflops * 1e12 * double(choice.world()));
  }
  return measured;
}

}  // namespace smp::published
