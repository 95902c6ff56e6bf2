#include "importers/trainer_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "smp/plan/text/lower_case.h"

namespace smp::importers {

void set_optimizer_word(ForeignReader& reader, const std::string& key, const std::string& word) {
  const std::string last = text::lower_case(word.substr(word.rfind('.') + 1));
  constexpr std::array<std::string_view, 10> kAdamW = {
      "adamw",           "adamw_torch", "adamw_torch_fused",     "adamw_hf", "adamw_apex_fused",
      "adamw_torch_xla", "fusedadamw",  "adamw_torch_npu_fused", "adam",     "fusedadam"};
  if (std::ranges::count(kAdamW, last) > 0) {
    reader.set_from(key, "training.optimizer.kind", "adamw");
    if (last.find("fused") != last.npos) reader.set_from(key, "training.fused_optimizer", "true");
  } else if (last == "sgd") {
    reader.set_from(key, "training.optimizer.kind", "sgd");
  } else if (last.find("adamw") != last.npos) {
    // adamw_bnb_8bit, adamw_torch_4bit, paged_adamw_32bit: fewer bits, or moved to the host.
    reader.set_from(key, "training.optimizer.kind", "adamw");
    if (last.find("8bit") != last.npos) {
      reader.set_from(key, "training.optimizer.momentum_dtype", "int8");
      reader.set_from(key, "training.optimizer.variance_dtype", "int8");
      reader.set_from(key, "training.fused_optimizer", "true");
      if (last.find("paged") == last.npos) return;
      reader.warn(key, fmt::format("{} {}: the plan keeps Adam's moments on the accelerator", key,
                                   text::quoted_for_message(word)));
      return;
    }
    reader.warn(key, fmt::format("{} {}: the plan keeps Adam's moments in fp32 on the accelerator",
                                 key, text::quoted_for_message(word)));
  } else {
    reader.error(key, fmt::format("{} {} is not supported, because the plan cannot price its "
                                  "state; supported are adamw and sgd",
                                  key, text::quoted_for_message(word)));
  }
}

void set_half_states(ForeignReader& reader, const std::string& key, bool fp16,
                     const std::string& optimizer) {
  reader.set_by(key, "training.optimizer.master_weights", "none");
  if (text::lower_case(optimizer).find("8bit") != std::string::npos) return;
  const std::string type = fp16 ? "fp16" : "bf16";
  if (text::lower_case(optimizer).find("sgd") != std::string::npos) return;
  for (const char* moment : {"momentum_dtype", "variance_dtype"}) {
    reader.set_by(key, fmt::format("training.optimizer.{}", moment), type);
  }
}

void set_schedule_word(ForeignReader& reader, const std::string& key, const std::string& word) {
  const std::string lower = text::lower_case(word);
  const bool cosine = lower == "cosine" || lower == "cosine_with_min_lr";
  const bool constant = lower == "constant" || lower == "constant_with_warmup";
  if (cosine || constant || lower == "linear") {
    reader.set_from(key, "training.optimizer.schedule",
                    cosine     ? "cosine"
                    : constant ? "constant"
                               : "linear");
  } else {
    reader.warn(key, fmt::format("{} {}: smp has no such learning rate; the job has a cosine", key,
                                 text::quoted_for_message(word)));
  }
}

void set_attention_word(ForeignReader& reader, const std::string& key, const std::string& word) {
  constexpr std::array<std::string_view, 3> kUnfused = {"eager", "disabled", "false"};
  const bool unfused = std::ranges::count(kUnfused, text::lower_case(word)) > 0;
  reader.set_from(key, "training.attention", unfused ? "unfused" : "flash");
}

void set_trainer(ForeignReader& reader, Trainer trainer, const std::string& origin) {
  const char* const name = trainer == Trainer::kDeepSpeed    ? "deepspeed"
                           : trainer == Trainer::kTorchTitan ? "torchtitan"
                                                             : "fsdp2";
  reader.set("parallel.framework", name, origin);
}

bool set_deepspeed_or_fsdp(ForeignReader& reader, const ImportContext& context) {
  const auto file = reader.text("deepspeed");
  if (!file) {
    set_trainer(reader, Trainer::kFsdp, "no deepspeed");
    return false;
  }
  set_trainer(reader, Trainer::kDeepSpeed, "deepspeed = " + *file);
  if (!context.has_deepspeed) {
    reader.warn("deepspeed", fmt::format("the layout is in {}, which is not there: import it in "
                                         "the same call",
                                         *file));
  }
  return true;
}

std::string_view pipeline_of_word(ForeignReader& reader, const std::string& key,
                                  const std::string& word) {
  const std::string lower = text::lower_case(word);
  if (lower == "1f1b") return "interleaved";
  if (lower == "gpipe") return "simple";
  if (lower == "interleaved1f1b") return "virtual";
  if (lower == "zbvzerobubble") return "zb_v";
  reader.error(key, fmt::format("{} {} is not supported; supported are 1F1B, GPipe, "
                                "Interleaved1F1B and ZBVZeroBubble",
                                key, text::quoted_for_message(word)));
  return "";
}

void warn_quantized(ForeignReader& reader, const std::string& key) {
  reader.warn(
      key, fmt::format(
               "{}: the plan has 16-bit weights; fewer bits are priced for frozen weights beside "
               "LoRA's adapters: nf4 and int8",
               key));
}

AdapterValue adapter_value(const ForeignReader& reader, const std::string& key,
                           const std::string& absent) {
  if (const auto number = reader.number(key)) return {fmt::format("{}", *number), key};
  return {absent, "no " + key};
}

void set_adapters_of(ForeignReader& reader, const Adapters& adapters, const std::string& key,
                     Imported& out) {
  const std::string problem = set_adapters(adapters, out);
  if (!problem.empty()) reader.error(key, problem);
}

void warn_beside_adapters(ForeignReader& reader, const std::string& trained,
                          const std::string& dora) {
  const text::YamlNode* more = trained.empty() ? nullptr : reader.node(trained);
  if (more != nullptr && !words_of(*more).empty()) {
    reader.warn(trained, trained + ": the plan trains adapters alone");
  }
  if (reader.boolean(dora).value_or(false)) {
    reader.warn(dora, dora + ": DoRA is priced as LoRA");
  }
}

std::string deepspeed_file(const std::string& file, const std::string& path) {
  const auto found = [](const std::filesystem::path& candidate) {
    std::error_code none;
    return std::filesystem::is_regular_file(candidate, none) ? candidate.string() : std::string();
  };
  if (path.empty()) return "";
  if (const std::string here = found(path); !here.empty()) return here;
  std::filesystem::path folder = std::filesystem::path(file).parent_path();
  while (true) {
    if (const std::string beside = found(folder / path); !beside.empty()) return beside;
    const std::filesystem::path above = folder.parent_path();
    if (above == folder || folder.empty()) return "";
    folder = above;
  }
}

}  // namespace smp::importers
