#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <sstream>

#include "published/published_run.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/recompute_modules.h"

// How a run was laid out: sharding, batch, recomputation, offloading, stages.
namespace smp::published {
namespace {

void read_sharding(RunCells& cells, choice::LayoutChoice& choice, int64_t data, int64_t per_host) {
  const std::string word = cells.word("sharding");
  const auto says = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return contains(word, part); });
  };
  bool hybrid = says({"hybrid", "hsdp", "hpz", "mics"});
  if (word.empty() || says({"unstated"}) || word == "none" || word == "no" || word == "ddp" ||
      word == "0" || says({"zero0", "zero-0", "zero 0"})) {
    choice.sharding = Sharding::kNone;
  } else if (says({"zero1", "zero-1", "zero 1", "stage 1", "dist_opt", "distributed opt",
                   "distributed_opt", "dist-opt", "dist opt", "optimizer_state", "optimizer state",
                   "use-distributed-optimizer"}) ||
             word == "1" || word == "os") {
    choice.sharding = Sharding::kOptimizerState;
  } else if (says({"zero2", "zero-2", "zero 2", "stage 2", "shard_grad_op", "optim_grads"}) &&
             !says({"params"})) {
    choice.sharding = Sharding::kGradients;
  } else if (says({"zero3", "zero-3", "zero 3", "stage 3", "fsdp", "hsdp", "full_shard",
                   "full shard", "hybrid", "params"}) ||
             word == "3") {
    choice.sharding = Sharding::kParameters;
  } else if (word == "2") {
    choice.sharding = Sharding::kGradients;
  } else {
    cells.not_understood("sharding");
    return;
  }
  if (choice.sharding == Sharding::kNone) {
    choice.shard = 1;
    choice.replica = static_cast<int32_t>(data);
    return;
  }
  const auto degree = cells.degree("shard_degree");
  int64_t shard = degree.value_or(data);
  if (!degree && hybrid && !cells.has("shard_degree") && data % per_host == 0 &&
      word.find("zero") == std::string::npos) {
    shard = per_host;
    cells.assume(fmt::format("hybrid shard over the {} GPUs of a host", shard));
  }
  if (const auto instances = cells.note_count("num-distributed-optimizer-instances")) {
    if (*instances > 0 && data % *instances == 0) shard = data / *instances;
  }
  if (shard > data && shard % data == 0) shard = data;  // counted with tensor or context ranks
  if (shard < 1 || data % shard != 0) {
    cells.problem(fmt::format("shard_degree {} does not divide dp {}", shard, data));
    return;
  }
  choice.shard = static_cast<int32_t>(shard);
  choice.replica = static_cast<int32_t>(data / shard);
}

void read_batch(RunCells& cells, choice::LayoutChoice& choice, int64_t data, int64_t sequence,
                bool layout_is_published) {
  const auto micro = cells.degree("micro_batch");
  const auto accumulated = cells.degree("grad_accum");
  auto global = cells.degree("global_batch");
  if (!global && !micro && !accumulated && !layout_is_published) {
    global = std::max<int64_t>(data, (int64_t{4} << 20) / sequence);
    cells.assume(fmt::format("a batch of 4Mi tokens: {} samples", *global));
  }
  int64_t micro_batch = 1;
  int64_t microbatches = 1;
  if (micro) {
    micro_batch = *micro;
    microbatches = accumulated.value_or(1);
  } else if (global && accumulated) {
    micro_batch = std::max<int64_t>(1, *global / (data * *accumulated));
    microbatches = *accumulated;
  } else {
    microbatches = accumulated.value_or(1);
    if (const auto per_rank = cells.number_after("batch size per dp")) {
      (choice.pipeline > 1 ? microbatches : micro_batch) = std::max<int64_t>(1, *per_rank);
    }
    if (layout_is_published) cells.assume(fmt::format("micro batch of {}", micro_batch));
  }
  if (global) {
    const int64_t per_rank = std::max<int64_t>(1, (*global + data - 1) / data);
    microbatches = std::max<int64_t>(1, (per_rank + micro_batch - 1) / micro_batch);
    if (micro_batch * microbatches * data != *global) {
      cells.assume(fmt::format("batch of {} = {} x {} x {} instead of {}",
                               micro_batch * microbatches * data, micro_batch, microbatches, data,
                               *global));
    }
  }
  choice.micro_batch = static_cast<int32_t>(micro_batch);
  choice.microbatches = static_cast<int32_t>(microbatches);
}

// Megatron's modules: "mla_up_proj/mlp/moe", "moe_act layernorm". Those that the model does not
// have change nothing.
void read_modules(RunCells& cells, PublishedRun& run, std::string words) {
  for (char& letter : words) {
    if (std::string_view("/,+;[]'\"").find(letter) != std::string_view::npos) letter = ' ';
  }
  run.choice.recompute = Recompute::kSelective;
  std::istringstream in(words);
  std::vector<std::string> modules;
  for (std::string module; in >> module;) {
    if (!is_recompute_module(module)) return cells.not_understood("recompute");
    if (problem_of_recompute_modules({module}, run.job.model).empty()) modules.push_back(module);
  }
  if (modules.empty()) run.choice.recompute = Recompute::kNone;
  run.job.parallel.recompute_modules = modules;
}

// "selective", "selective (attention core)", "selective:op" (torchtitan), "selective:2" (every
// second layer whole), "selective:moe_act mlp" (Megatron's modules).
void read_selective(RunCells& cells, PublishedRun& run, const std::string& word) {
  choice::LayoutChoice& choice = run.choice;
  choice.recompute = Recompute::kSelective;
  const size_t colon = word.find(':');
  if (colon == std::string::npos) return;
  const std::string modules = trimmed(std::string_view(word).substr(colon + 1));
  if (const auto every = leading_number(modules); every && *every >= 1) {
    const double layers = double(cells.degree("layers").value_or(0)) / double(choice.pipeline);
    choice.recompute = Recompute::kFull;
    choice.recompute_layers = static_cast<int32_t>(std::ceil(layers / *every));
    return;
  }
  if (contains(modules, "core") || contains(modules, "attn") || contains(modules, "attention") ||
      modules == "op" || modules == "per-op" || modules == "per_op") {
    return;
  }
  read_modules(cells, run, modules);
}

void read_recompute(RunCells& cells, PublishedRun& run) {
  choice::LayoutChoice& choice = run.choice;
  const std::string word = cells.word("recompute");
  const auto starts = [&](const char* part) { return word.rfind(part, 0) == 0; };
  if (word.empty() || word == "none" || word == "no" || word == "off" || word == "false") {
    choice.recompute = Recompute::kNone;
  } else if (starts("full") || word == "yes" || word == "true" || word == "on") {
    choice.recompute = Recompute::kFull;
    const size_t block = word.find("block:");
    if (block != std::string::npos) {
      const auto layers = leading_number(word.substr(block + 6));
      if (!layers) {
        cells.not_understood("recompute");
      } else {
        choice.recompute_layers = static_cast<int32_t>(*layers);
      }
    }
  } else if (starts("selective") || starts("sac") || starts("per-op") || starts("op")) {
    read_selective(cells, run, word);
  } else if (starts("modules ")) {
    read_modules(cells, run, word.substr(std::string_view("modules ").size()));
  } else {
    cells.not_understood("recompute");
  }
}

void read_offload(RunCells& cells, choice::LayoutChoice& choice) {
  const std::string word = cells.word("offload");
  if (cells.mentions("deepspeed zero (old branch)") && !cells.mentions("pa_cpu=n")) {
    choice.offload_activations = true;  // their scripts pass --checkpoint-in-cpu
    cells.assume("checkpoints in host memory");
  }
  if (cells.has_note("fine-grained-activation-offloading")) {
    choice.offload_activations = true;
    cells.assume("all that blocks keep is offloaded");
  }
  if (word.empty() || word == "none" || word == "no" || word == "false") return;
  choice.offload_optimizer =
      contains(word, "optim") || word == "cpu" || word == "full" || word == "yes" || word == "all";
  choice.offload_parameters = contains(word, "param") || word == "full" || word == "all";
  choice.offload_activations = contains(word, "activation") || word == "all";
  if (!choice.offload_optimizer && !choice.offload_parameters && !choice.offload_activations) {
    cells.not_understood("offload");
  }
}

// nanotron's models/base.py, build_model(): a stage takes blocks until the matmuls so far pass its
// share of those of all blocks and of the head. A stage between two others has a block at least.
choice::BlockPartition partition_by_matmuls(const ModelSpec& model, int64_t stages) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>((model.num_heads + model.num_kv_heads) * model.head_dim);
  const double mlp = (is_gated(model.mlp) ? 3 : 2) * static_cast<double>(model.ffn_hidden_size);
  const double block = h * (2 * heads + mlp);
  const double all =
      block * static_cast<double>(model.num_layers) + h * static_cast<double>(model.vocab_size);
  std::vector<int64_t> blocks(static_cast<size_t>(stages), 0);
  size_t stage = 0;
  for (int64_t i = 1; i <= model.num_layers; ++i) {
    ++blocks[stage];
    const double share = static_cast<double>(stage + 1) / static_cast<double>(stages);
    const bool is_full = static_cast<double>(i) * block > all * share;
    if (stage + 1 < blocks.size() && is_full) ++stage;
  }
  for (size_t i = blocks.size() - 2; i > 0; --i) {
    if (blocks[i] > 0) continue;
    size_t from = i;
    while (from > 0 && blocks[from] < 2) --from;
    --blocks[from];
    ++blocks[i];
  }
  return choice::BlockPartition(std::move(blocks));
}

// Which blocks the first and the last stage hold, where the run does not cut them evenly.
void read_stages(RunCells& cells, choice::LayoutChoice& choice, const ModelSpec& model,
                 bool cuts_by_matmuls) {
  const int64_t stages = choice.pipeline;
  if (stages == 1) return;
  if (cuts_by_matmuls) {
    choice.partition = partition_by_matmuls(model, stages);
    return;
  }
  if (const auto first = cells.note_count("decoder-first-pipeline-num-layers")) {
    choice.first_stage_layers = static_cast<int32_t>(*first);
  }
  if (const auto last = cells.note_count("decoder-last-pipeline-num-layers")) {
    choice.last_stage_layers = static_cast<int32_t>(*last);
  }
  const bool large_table = model.vocab_size > 200'000 && model.num_layers % stages != 0;
  const bool counts_embedding =
      cells.has_note("account-for-embedding-in-pipeline-split") || large_table;  // BLOOM's runs
  if (counts_embedding && choice.first_stage_layers == 0 && (model.num_layers + 2) % stages == 0) {
    const int64_t each = (model.num_layers + 2) / stages;  // embedding and head as a layer each
    choice.first_stage_layers = static_cast<int32_t>(each - 1);
    choice.last_stage_layers = static_cast<int32_t>(each - 1);
  }
  const auto layout = cells.note("pipeline-model-parallel-layout");
  if (!layout) return;
  // "Et*3|(tt|)*6mL": embedding and 3 blocks, six chunks of 2, then what predicts and the loss.
  std::vector<int64_t> chunks{0};
  std::string text;
  for (size_t i = 0; i < layout->size(); ++i) {
    const char c = (*layout)[i];
    if (c == '(') {
      const size_t close = layout->find(")*", i);
      const auto times =
          close == std::string::npos ? std::nullopt : leading_number(layout->substr(close + 2));
      if (!times) break;
      for (int k = 0; k < int(*times); ++k) text += layout->substr(i + 1, close - i - 1);
      i = close + 1;
      while (i + 1 < layout->size() && std::isdigit(static_cast<unsigned char>((*layout)[i + 1]))) {
        ++i;
      }
    } else if (c == '*') {
      const auto times = leading_number(layout->substr(i + 1));
      const char repeated = text.empty() ? '?' : text.back();
      for (int k = 1; times && k < int(*times); ++k) text += repeated;
      while (i + 1 < layout->size() && std::isdigit(static_cast<unsigned char>((*layout)[i + 1]))) {
        ++i;
      }
    } else {
      text += c;
    }
  }
  for (char c : text) {
    if (c == '|') chunks.push_back(0);
    if (c == 't') ++chunks.back();
  }
  const int64_t blocks = std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
  if (blocks != model.num_layers || static_cast<int64_t>(chunks.size()) % stages != 0) {
    cells.problem(
        fmt::format("notes: pipeline-model-parallel-layout={} does not give {} layers to "
                    "{} stages",
                    *layout, model.num_layers, stages));
    return;
  }
  choice.virtual_stages = static_cast<int32_t>(static_cast<int64_t>(chunks.size()) / stages);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (static_cast<int64_t>(i) % stages == 0) choice.first_stage_layers += int32_t(chunks[i]);
    if (static_cast<int64_t>(i) % stages == stages - 1)
      choice.last_stage_layers += int32_t(chunks[i]);
  }
}

void read_schedule(RunCells& cells, choice::LayoutChoice& choice) {
  choice.virtual_stages =
      std::max(choice.virtual_stages, static_cast<int32_t>(cells.degree("vpp").value_or(1)));
  // "M-M*|M-M-": Megatron's --hybrid-layer-pattern has a bar between two chunks.
  if (const auto pattern = cells.note("hybrid-layer-pattern")) {
    const auto chunks = static_cast<int32_t>(1 + std::ranges::count(*pattern, '|'));
    if (chunks % choice.pipeline == 0) choice.virtual_stages = chunks / choice.pipeline;
  }
  choice.schedule = choice.virtual_stages > 1 ? PipelineKind::kVirtual : PipelineKind::kInterleaved;
  if (cells.mentions("zbv") || cells.mentions("zb-v")) {
    choice.schedule = PipelineKind::kZbV;
    choice.virtual_stages = 2;
  } else if (cells.mentions("zb-h1") || cells.mentions("zb1p") || cells.mentions("zb_h1")) {
    choice.schedule = PipelineKind::kZbH1;
  } else if (cells.mentions("gpipe")) {
    choice.schedule = PipelineKind::kSimple;
  }
  if (choice.pipeline == 1) {
    choice.virtual_stages = 1;
    choice.schedule = PipelineKind::kInterleaved;
  }
}

}  // namespace

void read_layout(RunCells& cells, PublishedRun& run, int64_t data) {
  const JobSpec& job = run.job;
  choice::LayoutChoice& choice = run.choice;
  read_sharding(cells, choice, data, job.cluster.processes_per_host);
  read_batch(cells, choice, data, job.training.sequence_length, run.layout_is_published);
  read_recompute(cells, run);
  read_offload(cells, choice);
  read_stages(cells, choice, job.model, framework::framework_of(job).usual.cuts_by_matmuls);
  read_schedule(cells, choice);
  // torchtitan under a pipeline: reshard_after_forward "default" is "never" (parallelize_llama()),
  // and torch's stages reduce gradients with the last microbatch alone
  // (backward_maybe_with_nosync()).
  if (choice.pipeline > 1 && choice.sharding == Sharding::kParameters &&
      cells.mentions("torchtitan") && contains(cells.word("sharding"), "fsdp")) {
    choice.sharding = Sharding::kOptimizerState;
    cells.assume("weights and gradients stay whole: FSDP2 under torchtitan's pipeline");
  }
}

}  // namespace smp::published
