#include "jobfile/field_rows.h"

// How it is trained: the section training.
namespace smp::jobfile {
namespace {

bool evaluates(const JobSpec& job) { return job.training.evaluation.every_steps > 0; }
bool pads_documents(const JobSpec& job) { return job.training.data_pack == Packing::kPad; }
const Condition kPadsDocuments = {pads_documents, "training.data.pack", "pack: pad"};
bool evaluates_tokens(const JobSpec& job) { return evaluates(job) && kTransformerModel.holds(job); }
const Condition kEvaluates = {evaluates, "training.evaluation.every_steps", "every_steps above 0"};
const Condition kEvaluatesTokens = {evaluates_tokens, "training.evaluation.every_steps",
                                    "every_steps above 0, and a model that reads tokens"};

bool stops_early(const JobSpec& job) {
  return evaluates(job) && job.training.evaluation.patience > 0;
}
const Condition kStopsEarly = {stops_early, "training.evaluation.patience", "patience above 0"};

bool is_fp8(const JobSpec& job) { return job.training.precision == Precision::kFp8; }
const Condition kFp8 = {is_fp8, "training.precision", "precision: fp8"};

bool is_of_engine(const JobSpec& job) { return job.parallel.framework.is_engine(); }
const Condition kOfEngine = {is_of_engine, "parallel.framework", "framework: smp"};

}  // namespace

void add_training_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kTraining,
       "sequence_length",
       SMP_AT(training.sequence_length),
       "tokens of one sample",
       {.min = 1,
        .max = kMostRows,
        .computed = "model.max_positions",
        .condition = kTransformerModel,
        .also = {"seq_len", "seq_length", "n_ctx"}}},
      {kTraining,
       "micro_batch",
       SMP_AT(training.micro_batch),
       "samples of one microbatch of one data-parallel rank",
       {.min = 1,
        .max = kMostSamples,
        .also = {"micro_batch_size", "train_micro_batch_size_per_gpu"}}},
      {kTraining,
       "microbatches",
       SMP_AT(training.microbatches),
       "microbatches of one step of one data-parallel rank",
       {.min = 1,
        .max = kMostSamples,
        .also = {"gradient_accumulation_steps", "num_microbatches"}}},
      {kTraining,
       "global_batch",
       SMP_AT(training.global_batch),
       "samples of one step over all ranks = micro_batch x microbatches x data-parallel degree",
       {.min = 1, .max = kMostSamples, .also = {"global_batch_size", "train_batch_size"}}},
      {kTraining,
       "max_tokens_per_batch",
       SMP_AT(training.max_tokens_per_batch),
       "limit of global_batch x sequence_length",
       {.unit = Unit::kTokens, .min = 1, .max = kMostBytes}},
      {kTraining,
       "batch_ramp_start",
       SMP_AT(training.batch_ramp_start),
       "global batch of the first step of a ramp to global_batch; every batch of the ramp is a "
       "multiple of micro_batch x data-parallel degree; 0 = no ramp",
       {.max = kMostSamples, .also = {"rampup_batch_size"}}},
      {kTraining,
       "batch_ramp_increment",
       SMP_AT(training.batch_ramp_increment),
       "samples by which the batch grows",
       {.max = kMostSamples}},
      {kTraining, "precision", SMP_AT(training.precision),
       "type of activations and matmuls; bf16 and fp16 keep fp32 master weights; fp8 and "
       "nvfp4 = matmuls of that type, the rest as bf16"},
      {kTraining,
       "attention",
       SMP_AT(training.attention),
       "flash saves the statistics of the softmax for the backward pass; unfused saves the scores",
       {.also = {"attn_implementation", "attention_backend", "use_flash_attn"}}},
      {kTraining,
       "accumulate_gradients_in_fp32",
       SMP_AT(training.accumulate_gradients_in_fp32),
       "sum gradients in fp32 beside 16-bit weights; auto = as in the framework",
       {.also = {"accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32"}}},
      {kTraining,
       "fused_loss",
       SMP_AT(training.fused_loss),
       "the cross-entropy is one fused kernel, which saves no copies of the logits",
       {.also = {"cross_entropy_loss_fusion", "fused_cross_entropy"}}},
      {kTraining,
       "fp8_recipe",
       SMP_AT(training.fp8_recipe),
       "with precision: fp8, scaling of the operands: delayed and current = a scale for a tensor, "
       "of "
       "earlier steps' largest elements or of its own; blockwise = for 128 elements; mxfp8 = for "
       "32",
       {.condition = kFp8}},
      {kTraining,
       "fp8_parameters",
       SMP_AT(training.fp8_parameters),
       "with precision: fp8 or nvfp4, the weights of the layers' matrices are stored in that type "
       "alone, without a 16-bit copy",
       {.also = {"fp8_param_gather", "fp8_param", "fp4_param_gather"}}},
      {kTraining,
       "compiled",
       SMP_AT(training.compiled),
       "torch.compile fuses element-wise kernels and casts",
       {.also = {"torch_compile"}}},
      {kTraining,
       "deterministic",
       SMP_AT(training.deterministic),
       "results have the same bits for any pipeline degree (docs/determinism.md); accelerators "
       "then use deterministic kernels, which need larger workspaces",
       {.also = {"deterministic_mode"}}},
      {kTraining,
       "fused_optimizer",
       SMP_AT(training.fused_optimizer),
       "the update is one kernel, without temporaries; auto = as in the framework",
       {.also = {"adamw_torch_fused", "fused_adam"}}},
      {kTraining,
       "steps",
       SMP_AT(training.steps),
       "optimizer steps; 0 = plan only",
       {.max = kMostSteps, .also = {"max_steps", "train_iters"}}},
      {kTraining, "seed", SMP_AT(training.seed), "seed of the weights and of the data order"},
      {kTraining,
       "init_from",
       SMP_AT(training.init_from),
       "a folder of Hugging Face weights (config.json, safetensors) to start from; its tokenizer "
       "is kept with the saved weights; data.tokens is then required for text",
       {.condition = kTransformerModel}},
      {kTraining,
       "tokenizer",
       SMP_AT(training.tokenizer),
       "folder with the tokenizer of the data, in Hugging Face's files; the tokenizer is copied to "
       "the saved weights, so that transformers loads both from one folder; empty = the tokenizer "
       "of init_from",
       {.condition = kTransformerModel}},
      {kTraining,
       "save_weights_as",
       SMP_AT(training.save_weights_as),
       "type of the saved weights: fp32, fp64, bf16 or fp16, rounded to nearest, ties to even; "
       "auto = the type of the trained weights",
       {.also = {"save_dtype", "weights_dtype", "torch_dtype"}}},
      {kTraining,
       "metrics",
       SMP_AT(training.metrics),
       "outputs of each step's numbers in the run's folder: jsonl = metrics.jsonl, a line a step; "
       "tensorboard = event files in tensorboard/; [] = none",
       {.words = {"jsonl", "tensorboard"},
        .example = "[jsonl, tensorboard]",
        .also = {"report_to", "tensorboard_dir", "log_with"}}},
      {kFusions,
       "bias_and_activation",
       SMP_AT(training.fusions.bias_and_activation),
       "the bias of a product and the activation behind it",
       {.condition = kOfEngine}},
      {kFusions,
       "bias_and_attention",
       SMP_AT(training.fusions.bias_and_attention),
       "the bias of queries, keys and values, and attention",
       {.condition = kOfEngine}},
      {kFusions,
       "branch_sum",
       SMP_AT(training.fusions.branch_sum),
       "bias and dropout of a branch, and its sum with the residual stream",
       {.condition = kOfEngine}},
      {kData, "path", SMP_AT(training.data_path),
       "training data: a file of text or tokens, a folder of files, a glob, or the common prefix "
       "of Megatron's .bin and .idx; for model.layers a file of images; python-stdlib = the source "
       "of the standard library of python3 on PATH"},
      {kData,
       "format",
       SMP_AT(training.data_format),
       "format of the tokens on disk: text = bytes; megatron = .bin beside .idx; nanogpt = 16 bits "
       "each, without a header; llmc = .bin with llm.c's header; npy = a NumPy array of whole "
       "numbers; auto = recognized from the files (docs/data.md)",
       {.condition = kTransformerModel}},
      {kData,
       "sources",
       SMP_AT(training.data_sources),
       "data sets that are mixed, in place of path, each with its share of all samples, as in "
       "[{path: wiki, weight: 0.3}, {path: code, weight: 0.7}]",
       {.condition = kTransformerModel, .also = {"data_paths", "blend", "datasets"}}},
      {kData,
       "split",
       SMP_AT(training.data_split),
       "parts for training, for evaluation and left out, as in [98, 1, 1]; they are parts of the "
       "documents if an index gives these, else of the tokens; auto = all for training, except the "
       "samples at the end that evaluation holds out",
       {.max = 1e9, .condition = kTransformerModel}},
      {kData,
       "end_of_document",
       SMP_AT(training.data_end_of_document),
       "token that ends a document in files without an index; auto = none",
       {.max = kMostRows,
        .condition = kTransformerModel,
        .also = {"eod", "eot", "eos_token_id", "eod_token"}}},
      {kData,
       "suffixes",
       SMP_AT(training.data_suffixes),
       "endings of the files of a folder that are read, e.g. [.py, .md]; [] = all files",
       {.example = "[.py, .md]"}},
      {kData,
       "tokens",
       SMP_AT(training.data_tokens),
       "bytes = each byte of the text is one of 256 tokens (the engine has no tokenizer); auto = "
       "bytes if model.vocab_size is at most 512 and init_from is not set; else the key is "
       "required",
       {.condition = kTransformerModel}},
      {kData,
       "pack",
       SMP_AT(training.data_pack),
       "packing of documents into samples: concatenate = one long text, cut to length; documents = "
       "attention stays within a document, positions restart at each, and documents are cut as "
       "seldom as possible; pad = one document a sample",
       {.condition = kTransformerModel, .also = {"packing", "sample_packing"}}},
      {kData,
       "longer",
       SMP_AT(training.data_longer),
       "treatment of a document longer than sequence_length with pack: pad: refuse = an error, "
       "truncate = its end is left out",
       {.words = {"refuse", "truncate"}, .condition = kPadsDocuments}},
      {kData,
       "loss_mask",
       SMP_AT(training.data_loss_mask),
       "use the mask beside each file of tokens, which marks the tokens that count in the loss: "
       "FILE.mask.bin, a byte 0 or 1 for each token; or FILE.labels.npy or .labels.bin, 32 bits "
       "each, the token or -100; auto = all tokens count; if a mask exists, the key is required",
       {.condition = kTransformerModel}},
      {kImageFile,
       "channels",
       SMP_AT(training.images.channels),
       "numbers of a pixel; with 1, the number is copied to all channels of the model",
       {.min = 1, .max = kMostPixels, .computed = "model.input's", .condition = kLayerList}},
      {kImageFile,
       "height",
       SMP_AT(training.images.height),
       "pixels",
       {.min = 1, .max = kMostPixels, .computed = "model.input's", .condition = kLayerList}},
      {kImageFile,
       "width",
       SMP_AT(training.images.width),
       "pixels",
       {.min = 1, .max = kMostPixels, .computed = "model.input's", .condition = kLayerList}},
      {kImageFile,
       "largest",
       SMP_AT(training.images.largest),
       "largest number in the file; 0 to largest become -1 to 1",
       {.max = kMostScale, .min_excluded = true, .condition = kLayerList}},
      {kCheckpoint,
       "every_steps",
       SMP_AT(training.checkpoint.every_steps),
       "steps from one save to the next; the last step saves too; 0 = not by steps",
       {.max = kMostSteps, .also = {"save_steps", "save_interval", "checkpoint_interval"}}},
      {kCheckpoint,
       "every_minutes",
       SMP_AT(training.checkpoint.every_minutes),
       "minutes from one save to the next; 0 = not by time",
       {.max = kMostMinutes}},
      {kCheckpoint,
       "keep",
       SMP_AT(training.checkpoint.keep),
       "number of the newest checkpoints that stay; older ones are removed",
       {.min = 1,
        .max = kMostCheckpoints,
        .also = {"save_total_limit", "keep_last_n", "num_kept_partial_checkpoints"}}},
      {kEvaluation,
       "every_steps",
       SMP_AT(training.evaluation.every_steps),
       "steps from one evaluation to the next; the last step evaluates too; 0 = never",
       {.max = kMostSteps, .also = {"eval_steps", "eval_interval", "eval_every"}}},
      {kEvaluation,
       "samples",
       SMP_AT(training.evaluation.samples),
       "held-out samples of sequence_length: a multiple of global_batch, or any number with "
       "pad_last_batch; auto = global_batch",
       {.min = 1,
        .max = kMostSamples,
        .condition = kEvaluates,
        .also = {"eval_iters", "eval_samples", "max_eval_samples"}}},
      {kEvaluation,
       "pad_last_batch",
       SMP_AT(training.evaluation.pad_last_batch),
       "pad the last batch where samples is no multiple of global_batch; padding does not count in "
       "the mean; false = such a number of samples is an error",
       {.condition = kEvaluates, .also = {"drop_last", "dataloader_drop_last"}}},
      {kEvaluation,
       "sets",
       SMP_AT(training.evaluation.sets),
       "separate evaluation data, each with a name, as in [{name: code, path: code-val}]; no "
       "training data are then held out, except by split",
       {.condition = kEvaluatesTokens, .also = {"valid_data_path", "eval_datasets"}}},
      {kEvaluation,
       "keep_best",
       SMP_AT(training.evaluation.keep_best),
       "an evaluation with the lowest loss so far saves a checkpoint; `best` names the last of "
       "these, which is not removed",
       {.condition = kEvaluates, .also = {"load_best_model_at_end", "save_best", "save_top_k"}}},
      {kEvaluation,
       "patience",
       SMP_AT(training.evaluation.patience),
       "evaluations in a row without improvement after which the run ends; 0 = it does not end "
       "early",
       {.max = kMostSteps,
        .condition = kEvaluates,
        .also = {"early_stopping_patience", "early_stopping"}}},
      {kEvaluation,
       "min_improvement",
       SMP_AT(training.evaluation.min_improvement),
       "smallest decrease of the loss that patience counts as an improvement",
       {.max = kMostScale,
        .condition = kStopsEarly,
        .also = {"min_delta", "early_stopping_threshold"}}},
      {kTrace,
       "steps",
       SMP_AT(training.trace.steps),
       "first and last step of the timelines that all ranks record for trace.json in the run's "
       "folder (docs/watching.md); steps count from 1; auto = none",
       {.min = 1, .max = kMostSteps, .example = "[10, 12]", .also = {"profile_steps"}}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace smp::jobfile
