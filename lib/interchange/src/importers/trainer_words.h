#pragma once

#include <string>
#include <string_view>

#include "importers/adapters.h"
#include "importers/foreign_keys.h"

// Words that the configurations of fine-tuning programs share (LLaMA-Factory, axolotl, Automodel):
// those of transformers' Trainer and of PyTorch. Each function sets keys of the job from the key
// `key` of the file, or reports what a job cannot express.
namespace smp::importers {

// "adamw_torch_fused", "AdamW", "sgd": training.optimizer.kind. Moments of 8 bits
// are priced, paged ones a warning; optimizers with other state are errors.
void set_optimizer_word(ForeignReader& reader, const std::string& key, const std::string& word);

// Weights of 16 bits without fp32 ones, and moments of their type (bf16, or fp16) unless
// `optimizer`, as set_optimizer_word() takes it, has moments of 8 bits.
void set_half_states(ForeignReader& reader, const std::string& key, bool fp16,
                     const std::string& optimizer);

// "cosine", "linear", "constant_with_warmup", ...: training.optimizer.schedule.
void set_schedule_word(ForeignReader& reader, const std::string& key, const std::string& word);

// "fa2", "sdpa", "flash_attention_2", "eager", ...: training.attention.
void set_attention_word(ForeignReader& reader, const std::string& key, const std::string& word);

// What trains underneath, whose memory and time the plan predicts.
enum class Trainer { kFsdp, kTorchTitan, kDeepSpeed };
void set_trainer(ForeignReader& reader, Trainer trainer, const std::string& origin);

// For the programs whose key "deepspeed" names a file: DeepSpeed trains, and its file has the
// layout, or FSDP does. Returns whether DeepSpeed does; warns if its file is not read in the same
// call.
bool set_deepspeed_or_fsdp(ForeignReader& reader, const ImportContext& context);

// A schedule of torch.distributed.pipelining, in either case, as parallel.pipeline has it; an error
// at `key` and empty for another.
std::string_view pipeline_of_word(ForeignReader& reader, const std::string& key,
                                  const std::string& word);

// Warns that weights of few bits are planned as 16-bit ones.
void warn_quantized(ForeignReader& reader, const std::string& key);

// The number of `key`, else `absent`.
AdapterValue adapter_value(const ForeignReader& reader, const std::string& key,
                           const std::string& absent);
// set_adapters, whose problem is an error at `key`.
void set_adapters_of(ForeignReader& reader, const Adapters& adapters, const std::string& key,
                     Imported& out);
// Warns of modules that are trained whole beside adapters (key `trained`, "" if the format has
// none), and of DoRA (key `dora`).
void warn_beside_adapters(ForeignReader& reader, const std::string& trained,
                          const std::string& dora);

// The file of `deepspeed: path`: relative to the working directory, to the folder of `file`, or to
// a folder above it, as these programs' examples have it. Empty if there is none.
std::string deepspeed_file(const std::string& file, const std::string& path);

}  // namespace smp::importers
