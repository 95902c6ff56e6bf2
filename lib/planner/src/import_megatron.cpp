#include <fmt/format.h>

#include <algorithm>

#include "foreign_keys.h"
#include "shell_words.h"
#include "smp/plan/suggest.h"
#include "smp_dictionary.h"

// A Megatron-LM command line (or a script that holds one) as keys of a job file.
namespace smp {
namespace {

YamlNode scalar(const ShellWord& word) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.place = word.place;
  node.text = word.text;
  return node;
}

const ForeignKey* row_of(std::string_view flag) {
  for (const ForeignKey& row : megatron_keys()) {
    if (row.key == flag) return &row;
  }
  return nullptr;
}

// Gives the reader each flag with its values, once; flags that are not known are warnings, and
// errors where they are near to one that has a meaning here.
class FlagScan {
 public:
  FlagScan(ForeignReader& reader, Diagnostics& diagnostics, Imported& out)
      : reader_(reader), diagnostics_(diagnostics), out_(out) {}

  void scan(const std::vector<ShellWord>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!words[i].text.starts_with("--") || words[i].text.size() < 3) continue;
      const Place place = words[i].place;
      std::string flag = words[i].text.substr(2);
      std::vector<ShellWord> values;
      if (const size_t equals = flag.find('='); equals != std::string::npos) {
        ShellWord value = words[i];
        value.text = flag.substr(equals + 1);
        value.place.column += static_cast<int>(equals) + 3;
        values.push_back(value);
        flag.resize(equals);
      } else {
        while (i + 1 < words.size() && !words[i + 1].text.starts_with("--")) {
          values.push_back(words[++i]);
        }
      }
      if (flag == "nproc_per_node") flag = "nproc-per-node";
      take(flag, place, values);
    }
  }

 private:
  void take(const std::string& flag, Place place, const std::vector<ShellWord>& values) {
    const ForeignKey* row = row_of(flag);
    if (row == nullptr) {
      unknown(flag, place);
      return;
    }
    YamlNode node;
    if (row->form == Form::kBool) {
      node = scalar({"true", place, ""});
    } else if (values.empty()) {
      diagnostics_.error(place, fmt::format("--{} needs a value", flag));
      return;
    } else if (row->form == Form::kList) {
      node.kind = YamlNode::Kind::kList;
      node.place = place;
      for (const ShellWord& value : values) node.items.push_back(scalar(value));
    } else {
      node = scalar(values.front());
    }
    const size_t used = row->form == Form::kBool || row->use == Use::kIgnored ? 0
                        : row->form == Form::kList                            ? values.size()
                                                                              : 1;
    for (size_t i = 0; i < used; ++i) {
      if (values[i].unset.empty()) continue;
      diagnostics_.error(values[i].place,
                         fmt::format("the value of --{} is {}, which this text does not set", flag,
                                     values[i].unset));
      return;
    }
    if (reader_.has(flag)) {
      if (row->form != Form::kBool && reader_.text(flag) != node.text) {
        diagnostics_.error(place, fmt::format("--{} is given twice, as {} and as {}", flag,
                                              reader_.text(flag).value_or(""), node.text));
      }
      return;
    }
    reader_.add(flag, place, node);
  }

  void unknown(const std::string& flag, Place place) {
    if (std::ranges::count(megatron_words(), flag) > 0) {
      out_.ignored.push_back("--" + flag);
      return;
    }
    std::vector<std::string> names;
    for (const ForeignKey& row : megatron_keys()) names.emplace_back(row.key);
    // A typing mistake is at most two letters; many flags of Megatron differ from these by more.
    const auto near = nearest(flag, names);
    if (near && edit_distance(flag, *near) <= 2) {
      diagnostics_.error(place,
                         fmt::format("unknown flag '--{}', did you mean '--{}'?", flag, *near));
      return;
    }
    out_.warnings.push_back(
        fmt::format("{}:{}:{}: unknown flag '--{}'", out_.file, place.line, place.column, flag));
  }

  ForeignReader& reader_;
  Diagnostics& diagnostics_;
  Imported& out_;
};

class MegatronLine {
 public:
  MegatronLine(ForeignReader& reader, const ImportContext& context)
      : reader_(reader), known_(context) {}

  void read() {
    reader_.copy_all();
    reader_.set("parallel.profile", "megatron", "Megatron");
    cluster();
    if (has("num-layers") || has("hidden-size")) model();
    degrees();
    schedule();
    sharding();
    precision();
    recompute();
    rest();
  }

 private:
  bool has(std::string_view flag) const { return reader_.has(flag); }
  std::optional<int64_t> whole(std::string_view flag) const { return reader_.whole(flag); }
  static std::string shown(std::string_view flag) { return "--" + std::string(flag); }
  void set(std::string_view flag, std::string_view path, std::string value) {
    reader_.set(std::string(path), std::move(value),
                has(flag) ? shown(flag) : fmt::format("no --{}", flag));
  }
  void set(std::string_view flag, std::string_view path, int64_t value) {
    set(flag, path, fmt::format("{}", value));
  }
  void set(std::string_view flag, std::string_view path, bool value) {
    set(flag, path, std::string(value ? "true" : "false"));
  }

  void cluster() {
    if (const auto hosts = whole("nnodes")) {
      known_.hosts = hosts;
      set("nnodes", "cluster.hosts", *hosts);
    }
    if (const auto processes = whole("nproc-per-node")) {
      known_.processes_per_host = processes;
      set("nproc-per-node", "cluster.processes_per_host", *processes);
    }
    if (known_.processes_per_host && !known_.hosts) known_.hosts = 1;
  }

  void model() {
    reader_.set("model.family", "transformer", "Megatron");
    const bool swiglu = has("swiglu");
    const bool geglu = has("quick-geglu");
    const std::string_view mlp = swiglu ? "swiglu" : geglu ? "quick-geglu" : "squared-relu";
    set(has(mlp) ? mlp : "swiglu", "model.mlp",
        std::string(swiglu                ? "swiglu"
                    : geglu               ? "geglu"
                    : has("squared-relu") ? "relu"
                                          : "gelu"));
    set("normalization", "model.norm",
        std::string(reader_.text("normalization") == "RMSNorm" ? "rmsnorm" : "layernorm"));
    const bool bias = !has("disable-bias-linear");
    set(has("add-qkv-bias") ? "add-qkv-bias" : "disable-bias-linear", "model.qkv_bias",
        bias || has("add-qkv-bias"));
    set("disable-bias-linear", "model.attention_output_bias", bias);
    set("disable-bias-linear", "model.mlp_bias", bias);
    if (has("qk-layernorm")) set("qk-layernorm", "model.qk_norm", true);
    set("untie-embeddings-and-output-weights", "model.tied_embeddings",
        !has("untie-embeddings-and-output-weights"));
    positions();
    sizes(swiglu);
    set("make-vocab-size-divisible-by", "model.vocab_multiple_of",
        whole("make-vocab-size-divisible-by").value_or(128));
    for (const std::string_view kind : {"attention", "hidden"}) {
      const std::string flag = fmt::format("{}-dropout", kind);
      set(flag, fmt::format("model.{}_dropout", kind),
          fmt::format("{}", reader_.number(flag).value_or(0.1)));
    }
    experts();
    latent_attention();
  }

  void positions() {
    const std::string type = reader_.text("position-embedding-type").value_or("learned_absolute");
    if (type == "yarn" || type == "mrope" || type == "relative") {
      reader_.error("position-embedding-type",
                    fmt::format("--position-embedding-type {} is not known here: "
                                "learned_absolute, rope and none are",
                                type));
    }
    const bool rotary = type == "rope" || has("use-rotary-position-embeddings");
    const bool none = type == "none" || (has("no-position-embedding") && !rotary);
    set(has("use-rotary-position-embeddings") ? "use-rotary-position-embeddings"
                                              : "position-embedding-type",
        "model.position_embedding",
        std::string(rotary ? "rotary"
                    : none ? "none"
                           : "learned"));
    if (rotary && has("rotary-base")) {
      set("rotary-base", "model.rope_theta", *reader_.text("rotary-base"));
    }
  }

  void sizes(bool swiglu) {
    const auto hidden = whole("hidden-size");
    const auto heads = whole("num-attention-heads");
    const auto groups = whole("num-query-groups");
    if (hidden && heads && !has("kv-channels") && *hidden % *heads != 0) {
      reader_.error("hidden-size",
                    fmt::format("--hidden-size ({}) is not divisible by --num-attention-heads ({})",
                                *hidden, *heads));
    }
    if (has("group-query-attention") && groups) {
      set("num-query-groups", "model.num_kv_heads", *groups);
      if (heads && *heads % *groups != 0) {
        reader_.error("num-query-groups",
                      fmt::format("--num-attention-heads ({}) is not divisible by "
                                  "--num-query-groups ({})",
                                  *heads, *groups));
      }
    } else if (groups && heads && *groups != *heads) {
      reader_.warn("num-query-groups",
                   "--num-query-groups does nothing in Megatron without --group-query-attention");
    }
    if (const auto ffn = whole("ffn-hidden-size")) {
      set("ffn-hidden-size", "model.ffn_hidden_size", *ffn);
    } else if (hidden) {
      // arguments.py, validate_args: int((4 * hidden * 2 / 3) / 64) * 64
      set("ffn-hidden-size", "model.ffn_hidden_size",
          swiglu ? *hidden * 8 / 3 / 64 * 64 : 4 * *hidden);
    }
  }

  void experts() {
    if (!has("num-experts")) return;
    set("moe-router-topk", "model.experts_per_token", whole("moe-router-topk").value_or(2));
    if (const auto width = whole("moe-ffn-hidden-size")) {
      set("moe-ffn-hidden-size", "model.expert_ffn_hidden_size", *width);
    }
    const auto frequency = reader_.text("moe-layer-freq");
    if (!frequency) return;
    if (const auto period = whole_value(*frequency); period && *period > 0) {
      set("moe-layer-freq", "model.moe_layer_period", *period);
      return;
    }
    int64_t dense = 0, sparse = 0;
    if (dense_then_sparse(*frequency, dense, sparse)) {
      set("moe-layer-freq", "model.first_dense_layers", dense);
      return;
    }
    reader_.error(
        "moe-layer-freq",
        fmt::format("--moe-layer-freq {} cannot be said in a job file: a number, or dense "
                    "layers that all come first, as in ([0]*3+[1]*58)",
                    *frequency));
  }

  // "([0]*3+[1]*58)", with or without a factor
  static bool dense_then_sparse(std::string text, int64_t& dense, int64_t& sparse) {
    std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
    const auto part = [](std::string_view item, char digit) -> std::optional<int64_t> {
      if (item.size() < 3 || item[0] != '[' || item[1] != digit || item[2] != ']') {
        return std::nullopt;
      }
      if (item.size() == 3) return 1;
      return item[3] == '*' ? whole_value(item.substr(4)) : std::nullopt;
    };
    const size_t plus = text.find('+');
    if (plus == std::string::npos) return false;
    const auto first = part(std::string_view(text).substr(0, plus), '0');
    const auto second = part(std::string_view(text).substr(plus + 1), '1');
    if (!first || !second || *first < 0) return false;
    dense = *first;
    sparse = *second;
    return true;
  }

  void latent_attention() {
    if (!has("multi-latent-attention")) return;
    const auto copy = [&](std::string_view flag, std::string_view path, int64_t fallback) {
      const int64_t value = whole(flag).value_or(fallback);
      if (value > 0) set(flag, path, value);
    };
    // Defaults: transformer_config.py, class MLATransformerConfig.
    copy("q-lora-rank", "model.q_lora_rank", 0);
    copy("kv-lora-rank", "model.kv_lora_rank", 32);
    copy("qk-head-dim", "model.qk_head_dim", 128);
    copy("qk-pos-emb-head-dim", "model.qk_rope_head_dim", 64);
    copy("v-head-dim", "model.v_head_dim", 128);
  }

  void degrees() {
    tensor_ = whole("tensor-model-parallel-size").value_or(1);
    pipeline_ = whole("pipeline-model-parallel-size").value_or(1);
    context_ = whole("context-parallel-size").value_or(1);
    set("tensor-model-parallel-size", "parallel.tensor_parallel_degree", tensor_);
    set("pipeline-model-parallel-size", "parallel.pipeline_parallel_degree", pipeline_);
    if (has("context-parallel-size")) {
      set("context-parallel-size", "parallel.context_parallel_degree", context_);
    }
    // Megatron's order of ranks: tensor, context, data, pipeline from fast to slow.
    set("use-tp-pp-dp-mapping", "parallel.placement_strategy",
        std::string(has("use-tp-pp-dp-mapping") ? "cluster" : "PDT"));
    if (tensor_ > 1) {
      set("sequence-parallel", "parallel.sequence_parallel", has("sequence-parallel"));
    }
  }

  void schedule() {
    const auto layers = has("num-layers") ? whole("num-layers") : known_.num_layers;
    const auto chunk = whole("num-layers-per-virtual-pipeline-stage");
    auto chunks = whole("num-virtual-stages-per-pipeline-rank");
    std::string_view flag = "num-virtual-stages-per-pipeline-rank";
    if (chunk && chunks) {
      reader_.error(flag,
                    "--num-virtual-stages-per-pipeline-rank and "
                    "--num-layers-per-virtual-pipeline-stage say the same thing: give one");
    } else if (chunk && layers) {
      flag = "num-layers-per-virtual-pipeline-stage";
      if (*layers % product_of({*chunk, pipeline_}) != 0) {
        reader_.error(flag, fmt::format("--num-layers ({}) is not divisible by stages x "
                                        "--num-layers-per-virtual-pipeline-stage = {} x {}",
                                        *layers, pipeline_, *chunk));
      } else {
        chunks = *layers / pipeline_ / *chunk;
      }
    } else if (chunk) {
      reader_.error("num-layers-per-virtual-pipeline-stage",
                    "--num-layers-per-virtual-pipeline-stage needs --num-layers, or the model's "
                    "config.json in the same call");
    }
    if (pipeline_ > 1) {
      const bool interleaves = chunks.value_or(1) > 1;
      reader_.set("parallel.pipeline", interleaves ? "virtual" : "interleaved",
                  interleaves ? shown(flag) : "Megatron's pipeline is 1F1B");
      if (interleaves) set(flag, "parallel.virtual_pipeline_degree", *chunks);
    }
    uneven(layers);
  }

  void uneven(std::optional<int64_t> layers) {
    const auto first = whole("decoder-first-pipeline-num-layers");
    const auto last = whole("decoder-last-pipeline-num-layers");
    if (!first && !last) return;
    const std::string_view flag =
        first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
    const int64_t middle = pipeline_ - (first ? 1 : 0) - (last ? 1 : 0);
    const int64_t rest = layers.value_or(0) - first.value_or(0) - last.value_or(0);
    if (!layers) {
      reader_.error(flag, fmt::format("--{} needs --num-layers, or the model's config.json in the "
                                      "same call",
                                      flag));
      return;
    }
    if (middle < 0 || (middle == 0 && rest != 0) ||
        (middle > 0 && (rest <= 0 || rest % middle != 0))) {
      reader_.error(
          flag, fmt::format("{} layers are left for the {} other stages, and do not divide", rest,
                            middle));
      return;
    }
    std::string list;
    for (int64_t stage = 0; stage < pipeline_; ++stage) {
      const int64_t own = stage == 0 && first              ? *first
                          : stage == pipeline_ - 1 && last ? *last
                                                           : rest / std::max<int64_t>(middle, 1);
      list += fmt::format("{}{}", list.empty() ? "" : ", ", own);
    }
    set(flag, "parallel.partition", fmt::format("[{}]", list));
  }

  void sharding() {
    const bool own_fsdp = has("use-megatron-fsdp") || has("use-custom-fsdp");
    const std::string strategy =
        reader_.text("data-parallel-sharding-strategy").value_or("no_shard");
    std::string kind = "none";
    std::string_view flag = "use-distributed-optimizer";
    if (has("use-torch-fsdp2")) {
      kind = "parameters";
      flag = "use-torch-fsdp2";
    } else if (own_fsdp) {
      flag = "data-parallel-sharding-strategy";
      kind = strategy == "optim_grads_params" ? "parameters"
             : strategy == "optim_grads"      ? "gradients"
             : strategy == "optim"            ? "optimizer_state"
                                              : "none";
    } else if (has("use-distributed-optimizer")) {
      kind = "optimizer_state";
    }
    const std::string origin = has(flag) ? shown(flag) : fmt::format("no --{}", flag);
    const int64_t instances = whole("num-distributed-optimizer-instances").value_or(1);
    if (instances == 1 || kind == "none") {
      set_shard_over_all(reader_, kind, known_, context_, tensor_, pipeline_, origin);
      return;
    }
    const auto world = known_.world();
    const int64_t ranks = product_of({tensor_, pipeline_, context_, instances});
    if (!world) {
      reader_.error("num-distributed-optimizer-instances",
                    "--num-distributed-optimizer-instances needs the number of ranks: give --hosts "
                    "and --processes-per-host, or torchrun's --nnodes and --nproc-per-node");
    } else if (*world % ranks != 0) {
      reader_.error("num-distributed-optimizer-instances",
                    fmt::format("{} ranks are not divisible by tensor x pipeline x context x "
                                "instances = {} x {} x {} x {}",
                                *world, tensor_, pipeline_, context_, instances));
    } else {
      reader_.set("parallel.sharding", *world / ranks > 1 ? kind : "none", origin);
      set("num-distributed-optimizer-instances", "parallel.sharded_data_parallel_degree",
          *world / ranks);
    }
  }

  void precision() {
    if (has("bf16") && has("fp16")) {
      reader_.error("fp16", "--fp16 and --bf16 cannot both be given");
      return;
    }
    const std::string_view flag = has("fp8-format") ? "fp8-format" : has("fp16") ? "fp16" : "bf16";
    set(flag, "training.precision",
        std::string(has("fp8-format") ? "fp8"
                    : has("fp16")     ? "fp16"
                    : has("bf16")     ? "bf16"
                                      : "fp32"));
    if (has("accumulate-allreduce-grads-in-fp32")) {
      set("accumulate-allreduce-grads-in-fp32", "training.accumulate_gradients_in_fp32", true);
    } else if (has("grad-reduce-in-bf16")) {
      set("grad-reduce-in-bf16", "training.accumulate_gradients_in_fp32", false);
    }
  }

  void recompute() {
    const auto granularity = reader_.text("recompute-granularity");
    if (granularity) {
      set("recompute-granularity", "parallel.recompute", *granularity);
    } else {
      set("recompute-activations", "parallel.recompute",
          std::string(has("recompute-activations") ? "selective" : "none"));
    }
    const auto layers = whole("recompute-num-layers");
    if (granularity == "full" && !has("recompute-method")) {
      reader_.error("recompute-granularity",
                    "--recompute-granularity full needs --recompute-method uniform or block");
    }
    if (layers && reader_.text("recompute-method") == "block") {
      set("recompute-num-layers", "parallel.recompute_layers", *layers);
    } else if (layers && *layers > 1) {
      reader_.warn(
          "recompute-num-layers",
          fmt::format("uniform keeps one checkpoint for every {} layers; the plan keeps one "
                      "for each",
                      *layers));
    }
    if (has("optimizer-cpu-offload")) {
      set("optimizer-cpu-offload", "parallel.offload_optimizer", true);
      if (reader_.number("optimizer-offload-fraction").value_or(1) < 1) {
        reader_.warn(
            "optimizer-offload-fraction",
            "a fraction below 1 keeps a part of the optimizer on the accelerator; the plan "
            "moves all of it");
      }
    }
  }

  void rest() {
    const auto backend = reader_.text("attention-backend");
    if (backend || has("use-flash-attn")) {
      const bool unfused = backend == "unfused" || backend == "local";
      set(backend ? "attention-backend" : "use-flash-attn", "training.attention",
          std::string(unfused ? "unfused" : "flash"));
    }
    if (const auto elements = whole("ddp-bucket-size")) {
      set("ddp-bucket-size", "parallel.bucket_bytes", *elements * 4);
    }
    if (const auto optimizer = reader_.text("optimizer"); optimizer && *optimizer != "adam") {
      reader_.error("optimizer", fmt::format("--optimizer {} holds other state than Adam's two "
                                             "moments, which is what a plan prices",
                                             *optimizer));
    }
    if (const YamlNode* ramp = reader_.node("rampup-batch-size")) {
      const bool numbers =
          ramp->items.size() == 3 && std::ranges::all_of(ramp->items, [](const YamlNode& item) {
            return whole_value(item.text).value_or(0) > 0;
          });
      if (!numbers) {
        reader_.error("rampup-batch-size",
                      "--rampup-batch-size takes three numbers: start, increment, samples");
      } else {
        set("rampup-batch-size", "training.batch_ramp_start", ramp->items[0].text);
        set("rampup-batch-size", "training.batch_ramp_increment", ramp->items[1].text);
      }
    }
  }

  ForeignReader& reader_;
  ImportContext known_;
  int64_t tensor_ = 1;
  int64_t pipeline_ = 1;
  int64_t context_ = 1;
};

}  // namespace

void read_megatron(const JobSource& source, int number, Diagnostics& diagnostics,
                   const ImportContext& context, Imported& out) {
  ForeignReader reader(megatron_keys(), diagnostics, out);
  FlagScan(reader, diagnostics, out).scan(shell_words(source.text, number));
  MegatronLine(reader, context).read();
}

}  // namespace smp
