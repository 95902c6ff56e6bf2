#pragma once

#include <memory>
#include <string>

#include "smp/plan/model/layers.h"

namespace smp::model {

// A regular expression over layers: POSIX extended, case-insensitive. Matching is libc's.
// Immutable; matches() is safe from any thread.
class LayerPattern {
 public:
  explicit LayerPattern(const std::string& pattern);
  ~LayerPattern();
  LayerPattern(const LayerPattern&) = delete;
  LayerPattern& operator=(const LayerPattern&) = delete;

  const std::string& problem() const { return problem_; }  // empty = it is an expression
  // Whether the expression is found in the layer's kind ("block"; "gpt2_block" and "llama_block"
  // for the blocks of these families), its name ("layers.3") or the type of one of its operators
  // ("conv2d").
  bool matches(const ModelSpec& model, const LayerSpec& layer) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string problem_;
};

// "embedding, gpt2_block, head": each kind once, in the order of the model; for a list, the types
// of its operators.
std::string kinds_in_words(const ModelSpec& model);

}  // namespace smp::model
