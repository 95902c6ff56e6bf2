#include "importers/huggingface_gpt_oss.h"

#include <fmt/format.h>

namespace smp::importers {

void read_gpt_oss(HuggingFaceReader reader) {
  reader.set_word("", "gelu", "sigmoid");
  reader.set_word("", "glu_offset", "1");
  reader.set_word("", "attention_sinks", "true");
  reader.set_word("", "router_bias", "true");
  const double limit = reader.keys.number("swiglu_limit").value_or(huggingface::kGptOssLimit);
  if (limit != huggingface::kGptOssLimit) {
    reader.keys.error("swiglu_limit",
                      fmt::format("swiglu_limit is {}; transformers 4 computes with {} always",
                                  limit, huggingface::kGptOssLimit));
  }
  reader.set_word("swiglu_limit", "glu_limit", fmt::format("{}", limit));
}

}  // namespace smp::importers
