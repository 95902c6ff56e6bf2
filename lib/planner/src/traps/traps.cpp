#include "smp/planner/traps/traps.h"

#include "choice/resolve.h"
#include "traps/rules.h"

namespace smp::traps {
namespace {

struct Rule {
  RuleWords words;
  Finding (*find)(const Looked& at);
};

constexpr Rule kRules[] = {
    {{"smp/vocabulary-not-padded", "model.vocab_size",
      "rows of the vocabulary on a tensor rank are no multiple of 64"},
     vocabulary_not_padded},
    {{"smp/hidden-not-aligned", "model.hidden_size",
      "columns of the hidden state or of a tensor rank's heads are no multiple of 64"},
     hidden_not_aligned},
    {{"smp/ffn-not-aligned", "model.ffn_hidden_size",
      "columns of an MLP on a tensor rank are no multiple of 64"},
     ffn_not_aligned},
    {{"smp/head-dim-not-aligned", "model.head_dim", "head_dim is no multiple of 8"},
     head_dim_not_aligned},
    {{"smp/head-dim-large", "model.head_dim", "head_dim is above 128"}, head_dim_large},
    {{"smp/small-matmuls", "training.micro_batch",
      "a microbatch's matmuls do not fill the accelerator"},
     small_matmuls},
    {{"smp/tensor-over-hosts", "parallel.placement_strategy",
      "the ranks of a tensor group are on several hosts"},
     tensor_over_hosts},
    {{"smp/kv-heads-replicated", "parallel.tensor_parallel_degree",
      "there are more tensor ranks than KV heads"},
     kv_heads_replicated},
    {{"smp/pipeline-bubble", "training.microbatches",
      "stages wait for more than a fifth of the pipeline's time"},
     pipeline_bubble},
    {{"smp/uneven-stages", "parallel.pipeline_parallel_degree",
      "layers do not divide by the stages, and one stage has more to do"},
     uneven_stages},
    {{"smp/expert-imbalance", "parallel.expert_parallel_degree",
      "a rank whose experts get more tokens than others runs out of memory"},
     expert_imbalance},
    {{"smp/batch-over-token-limit", "training.max_tokens_per_batch",
      "a step has more than 4,194,304 tokens"},
     batch_over_token_limit},
    {{"smp/sequence-over-positions", "training.sequence_length",
      "sequences are longer than the scaled rotary positions reach"},
     sequence_over_positions},
    {{"smp/fp16-without-loss-scaling", "training.loss_scale.dynamic",
      "fp16 gradients without loss scaling"},
     fp16_without_loss_scaling},
    {{"smp/vision-tower", "model.vision_parameters",
      "of a vision tower only the parameters are priced"},
     vision_tower},
};

}  // namespace

std::vector<RuleWords> rules() {
  std::vector<RuleWords> all;
  for (const Rule& rule : kRules) all.push_back(rule.words);
  return all;
}

std::vector<Trap> traps_of(const Plan& plan, const std::vector<memory::EventPeak>& events) {
  const Looked at{plan, choice::choice_of(plan), events};
  std::vector<Trap> traps;
  for (const Rule& rule : kRules) {
    if (const Finding text = rule.find(at))
      traps.push_back({std::string(rule.words.id), std::string(rule.words.key), *text});
  }
  return traps;
}

}  // namespace smp::traps
