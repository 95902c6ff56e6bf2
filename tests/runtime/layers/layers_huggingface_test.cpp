#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ledger/tensor_factories.h"
#include "runtime/huggingface_golden.h"
#include "runtime/layers_support.h"
#include "runtime/state_weights_folder.h"
#include "smp/plan/data/data_files.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::safetensors;
using namespace smp::test;

// tests/golden/huggingface/*: models of transformers as save_pretrained leaves them, and what they
// said and how they would have learnt (scripts/make-golden-huggingface). Here their config.json is
// imported, their weights read and their loss computed by our layers.
namespace {

class Golden {
 public:
  explicit Golden(const std::string& name) : dir_(golden_folder(name)) {}

  const std::string& dir() const { return dir_; }
  at::Tensor tensor(const std::string& name) const {
    return tensor_of_file(dir_ + "/expected.safetensors", name);
  }
  // By our names.
  NamedTensors gradients(const ModelSpec& model) const {
    const SafetensorsReader reader(dir_ + "/expected.safetensors");
    constexpr std::string_view kPrefix = "gradient.";
    std::map<std::string, at::Tensor> theirs;
    for (const SafetensorsEntry& entry : reader.header().entries) {
      if (!entry.name.starts_with(kPrefix)) continue;
      theirs[entry.name.substr(kPrefix.size())] = tensor(entry.name);
    }
    return parameters_in(model, theirs);
  }

 private:
  std::string dir_;
};

void check_log_probabilities(const ModelOnRank& rank, const Golden& golden, int64_t vocab_size) {
  const at::Tensor tokens = golden.tensor("tokens"), expected = golden.tensor("log_probabilities");
  for (int64_t sample = 0; sample < tokens.size(-2); ++sample) {
    const at::Tensor found =
        log_probabilities(rank, tokens.narrow(-2, sample, 1).contiguous(), vocab_size);
    CHECK(found.sub(expected[sample]).abs().max().item().toDouble() <= tolerance::kHuggingFaceF64);
  }
}

// What is `begin` and more ahead of each, in `rows` rows: kNoTarget beyond the end.
at::Tensor ahead(const at::Tensor& ids, int64_t begin, int64_t rows) {
  const at::Tensor result =
      ledger::full_tensor({rows, ids.size(0), ids.size(1)}, data::kNoTarget, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t by = begin + row, count = ids.size(1) - by;
    result[row].narrow(1, 0, count).copy_(ids.narrow(1, by, count));
  }
  return result;
}

std::vector<at::Tensor> batch_of(const Golden& golden, int64_t further) {
  const at::Tensor tokens = golden.tensor("tokens"), targets = golden.tensor("targets");
  if (further == 0) return {tokens, targets};
  return {tokens, ahead(tokens, 1, further), ahead(targets, 0, 1 + further)};
}

void check_against(const std::string& name, at::ScalarType type, double tolerance) {
  at::set_num_threads(1);
  INFO(name);
  const Golden golden(name);
  const ModelSpec model = model_of_folder(golden.dir());
  ModelOnRank rank(model, weights_of_folder(model, golden.dir(), type), nullptr);
  const double loss = golden.tensor("loss").item().toDouble();
  const double ours = rank.run(batch_of(golden, rank.further_tokens()), true);
  CHECK(std::abs(ours - loss) <= tolerance * loss);
  if (type == at::kDouble) check_log_probabilities(rank, golden, model.vocab_size);
  const NamedTensors gradients = golden.gradients(model);
  // A router's correction bias has none of the loss.
  const auto biases = std::ranges::count_if(
      rank.gradients(), [](const auto& one) { return one.first.ends_with("correction_bias"); });
  CHECK(gradients.size() + static_cast<size_t>(biases) == rank.gradients().size());
  for (const auto& [parameter, gradient] : gradients) {
    INFO(parameter);
    const double difference =
        rank.gradients().at(parameter).to(at::kDouble).sub(gradient).abs().max().item().toDouble();
    CHECK(difference <= tolerance);
  }
}

}  // namespace

TEST_CASE("layers: loss, log-probabilities and gradients are those of transformers' models") {
  for (const char* name : kGoldenModels) {
    check_against(name, at::kDouble, tolerance::kHuggingFaceF64);
    check_against(name, at::kFloat, tolerance::kHuggingFaceF32);
  }
}
