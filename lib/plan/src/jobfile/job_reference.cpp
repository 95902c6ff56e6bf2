#include <fmt/format.h>

#include <cmath>

#include "jobfile/field_table.h"
#include "smp/plan/jobfile/job_format.h"
#include "text/scalar.h"

namespace smp::jobfile {

namespace {

constexpr std::string_view kHead = R"(# The job file

A job file says what to train (`model`), where (`cluster`), how long and on what (`training`), and
which parts of the layout are fixed (`parallel`). Only `model` is required. `smp-plan job.yaml` reads it and
chooses the rest.

```yaml
model:
  family: gpt2
  num_layers: 4
  hidden_size: 128
  num_heads: 4
  vocab_size: 256
cluster:
  processes_per_host: 4
  memory_per_process: 96MiB
training:
  sequence_length: 256
  steps: 50
  data:
    path: python-stdlib
parallel:
  tensor_parallel_degree: 2     # pinned; everything else is auto
```

## How it is read

- **Strictly.** A key that is unknown, given twice, missing or of the wrong type is an error, and so
  are keys that disagree. All errors come in one run, sorted by place:
  ```
  job.yaml:3:3: unknown key 'num_layer' in model, did you mean 'num_layers'?
    num_layer: 4
    ^
  ```
- **Whole numbers** are written plainly: `010`, `4e6`, `1_000`, `4.0` and `"4"` are refused; the error names
  the number to write.
- **Sizes** take `40GiB` (2^30), `40GB` (10^9), `40G` = `40GB`, or a number of bytes; token counts take
  `4Mi` (4,194,304) and `4M` (4,000,000); rates take `312T` and `25GB`.
- **`auto`**: the planner chooses the value, or it follows from other keys.
- **Booleans** are `true` and `false` only.
- **YAML** is one document of maps, lists and scalars in UTF-8: no tabs in the indentation, no
  anchors and aliases, no merge keys, no tags, at most 1 MiB.
- **Several files** are one job: `smp-plan model.yaml --cluster cluster.yaml` takes the cluster, and
  all other keys of the second file, from the second. `--set section.key=value` comes last, e.g.
  `--set parallel.tensor_parallel_degree=2 --set parallel.partition=[3,3,2]`.
- **Published models** go by name: `model: llama3-8b`, or by the name of the Hugging Face repository or of a recipe.
  [The table](models.md) has them all; keys of `--set` override those of the model.
- **Known clusters** go by name, wherever the program runs: `cluster: p5.48xlarge` in the file, or
  `--cluster p5.48xlarge`, with `--hosts 16`. They are the files of `configs/clusters`; a path is a file of
  your own.
- **Editors** complete and check keys with the schema: `smp-plan schema > smp.schema.json`, and
  `# yaml-language-server: $schema=./smp.schema.json` as the first line of the job file.

## Keys that belong together

- `sharding: optimizer_state`, `gradients` and `parameters` are ZeRO stages 1, 2 and 3, over
  `sharded_data_parallel_degree` ranks. `shard_optimizer_state: true` is `sharding: optimizer_state` over
  all data-parallel ranks, so a degree beside it must be their number; `sharded_data_parallel_degree` above 1 alone is `sharding: parameters`, and
  1 alone is `sharding: none`. Keys that disagree are an error.
- `partition` has one number per stage, and they add up to `num_layers`.
- `activation_checkpointing: true` is `recompute: full`, and `false` alone is `recompute: none`; beside
  `recompute: selective` it is `false`. `recompute_layers` and an `activation_checkpointing_strategy`
  other than `each` need `recompute: full`: alone they mean it.
- `offload_activations: true` alone turns activation checkpointing on, and moves the inputs that it keeps; beside
  `recompute: none` or `selective` it moves all saved tensors of blocks, which other frameworks refuse.
- `offload_parameters: true` needs `sharding: parameters`: alone it means it.
- `virtual_pipeline_degree` above 1 is `pipeline: virtual`, or 2 with `zb_v`; `virtual` needs it above 1.
- `sequence_parallel: true` needs `tensor_parallel_degree` above 1, which divides `sequence_length`.
- `tensor_parallel` has one of `attention`, `mlp` and `embedding` true where `tensor_parallel_degree` is above 1.
- `context_parallel_degree` c above 1 divides `sequence_length`, and so does 2c in a decoder: each rank takes
  an early and a late slice, which balances causal attention.
- `expert_parallel_degree` divides `num_experts`; keys of experts need `num_experts` (a degree of 1 does not), those
  of latent attention `kv_lora_rank`. `shared_expert_gate: true` needs `shared_expert_ffn_hidden_size`.
- `batch_ramp_start` and `batch_ramp_increment` stand together and reach `global_batch` exactly.
- `forbid` holds comparisons of a key of the layout (those of `parallel`, `micro_batch`, `microbatches`,
  `precision`) with values: `tensor_parallel_degree=8`, `micro_batch>=4`, `pipeline=simple|zb_v`, or several
  joined by ` and `. A layout for which all comparisons of an item hold is not chosen.
- `shared_norm: true` needs `parallel_residual: true`.
- `layer_pattern` has `num_layers` letters. M needs the sizes of Mamba-2 layers, E needs `num_experts`; it stands in place of
  `first_dense_layers`, `moe_layer_period`, `num_mtp_layers`, `parallel_residual` and `kv_lora_rank`.
- `chunked_windows` and `full_attention_period` need `sliding_window`.
- The model has at most 10^15 parameters.
- `prescaled_batch: false` needs `tensor_parallel_degree` 1.
- `suffixes` beside `path: python-stdlib` are `[.py]` or none.
- `path` or `sources` names the training data; `format` belongs to `path`, and each of `sources` has its own.
- `split` has three parts; with evaluation and without `evaluation.sets` its second is above 0.
- `pack: documents` and `pad` are for decoders; `longer` needs `pack: pad`; `end_of_document` is below `vocab_size`.
- `reserved_memory` is below `memory_per_process`.
- `sequence_length` is at most `max_positions`.
- `model.layers` replaces all other keys of `model` but `name`, `input` and `loss`; the job then reads images, and
  has no `sequence_length` (it counts as 1: tokens are samples).
- `device: cuda` needs `memory_per_process`; see [GPUs](gpu.md).

## Text and tokens

`training.data` names files of token ids, as Megatron-LM, nanoGPT, llm.c and NumPy write them, or text;
[Data](data.md) describes formats, mixtures, order, packing and masks. The engine has no tokenizer: it reads each byte of text as
one of 256 tokens; the plan and the dry run say so. Two kinds of jobs on text are refused if `steps` is above 0, because their losses would mean nothing:

- a `vocab_size` above 512 (256, and room for special tokens and padding), as bytes use only 256 of its rows: train from
  scratch with `vocab_size: 256`;
- `init_from`, as those weights were trained on the tokens of a tokenizer.

`training.data.tokens: bytes` allows both: for weights that were trained on bytes, such as those of an earlier
run, or to measure a large vocabulary on any text. Jobs that are only planned may have any vocabulary.
)";

// 26214400 -> 25MiB, where that is exact.
std::string readable_bytes(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < 6) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string bound_text(const Field& field, double bound) {
  const Unit unit = field.rule.unit;
  if (shape_of(field) == Shape::kNumber || bound < 0) return text::number_text(bound);
  const auto whole = static_cast<int64_t>(bound);
  if (unit == Unit::kBytes) return readable_bytes(whole);
  if (whole >= 1 << 20 && whole % (1 << 20) == 0) {
    std::string text = readable_bytes(whole);
    text.pop_back();  // the B
    return text;
  }
  return std::to_string(whole);
}

std::string range_text(const Field& field) {
  const Rule& rule = field.rule;
  const std::string low = bound_text(field, rule.min);
  if (!std::isfinite(rule.max)) {
    return rule.min_excluded ? fmt::format("above {}", low) : fmt::format("at least {}", low);
  }
  const std::string high = bound_text(field, rule.max);
  return fmt::format("{}{} {} {}", rule.min_excluded ? "above " : "", low,
                     rule.max_excluded ? "to below" : "to", high);
}

std::string kind_text(const Field& field) {
  switch (shape_of(field)) {
    case Shape::kWhole:
      if (field.rule.unit == Unit::kBytes) return "size";
      if (field.rule.unit == Unit::kTokens) return "tokens";
      return "whole number";
    case Shape::kUnsigned: return "whole number";
    case Shape::kNumber:
      if (field.rule.unit == Unit::kBytesPerS) return "bytes/s";
      if (field.rule.unit == Unit::kFlopsPerS) return "flop/s";
      if (field.rule.unit == Unit::kSeconds) return "seconds";
      return "number";
    case Shape::kBool: return "true, false";
    case Shape::kText: return field.rule.is_file_name ? "name" : "text";
    case Shape::kChoice: return fmt::format("{}", fmt::join(choices_of(field), ", "));
    case Shape::kWholeList: return "list of whole numbers";
    case Shape::kNumberList: return "list of numbers";
    case Shape::kTextList: {
      const std::vector<std::string> choices = choices_of(field);
      return choices.empty() ? "list of texts"
                             : fmt::format("list of {}", fmt::join(choices, ", "));
    }
    case Shape::kPointList: return "list of `{ranks, bytes, seconds, op}`";
    case Shape::kLayerList: return "list of names and maps with `type`";
    case Shape::kSourceList: return "list of `{path, weight, format, name}`";
    case Shape::kSetList: return "list of `{name, path, format}`";
  }
  return "";
}

std::string allowed_text(const Field& field) {
  switch (shape_of(field)) {
    case Shape::kWhole:
    case Shape::kNumber:
    case Shape::kWholeList:
    case Shape::kNumberList: return kind_text(field) + ", " + range_text(field);
    case Shape::kUnsigned: return kind_text(field) + ", 64 bits";
    default: return kind_text(field);
  }
}

std::string default_text(const Field& field) {
  if (field.rule.required) return "required";
  if (!field.rule.computed.empty()) return std::string(field.rule.computed);
  const auto text = value_text(field, JobSpec{});
  if (!text) return "none";
  if (field.rule.unit == Unit::kBytes && *text != "0" && *text != "auto") {
    return fmt::format("`{}`", readable_bytes(std::stoll(*text)));
  }
  return fmt::format("`{}`", *text);
}

}  // namespace

std::string job_reference_markdown() {
  std::string out(kHead);
  out +=
      "\n## All keys\n\nThis page is generated from the table in "
      "`lib/plan/src/jobfile/field_rows.cpp`.\n";
  for (const Section& section : job_sections()) {
    out += fmt::format("\n### {}\n\n{}.\n\n",
                       section.path.empty() ? "Top level" : fmt::format("`{}`", section.path),
                       section.doc);
    out += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for (const Field& field : job_fields()) {
      if (field.section != section.path) continue;
      out += fmt::format("| `{}` | {} | {} | {} |\n", field.key, allowed_text(field),
                         default_text(field), field.doc);
    }
  }
  return out;
}

}  // namespace smp::jobfile
