#include <doctest/doctest.h>

#include "runtime/state_weights_folder.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::test;

// tests/golden/saved-weights/*: weights that a run of job.yaml on pipeline 2 x tensor 2 saved, and
// what transformers' AutoModelForCausalLM makes of them (scripts/check-weights-transformers
// --write-golden).
TEST_CASE("saved weights give the worker's log-probabilities in transformers, to 1e-5") {
  for (const char* family : {"gpt2", "llama"}) {
    const std::string dir = SMP_SOURCE_DIR "/tests/golden/saved-weights/" + std::string(family);
    const ModelSpec model = model_of_folder(dir);
    const at::Tensor ids = tensor_of_file(dir + "/expected.safetensors", "tokens");
    const at::Tensor expected = tensor_of_file(dir + "/expected.safetensors", "log_probabilities");
    const ModelOnRank on_rank(model, weights_of_folder(model, dir, at::kFloat), nullptr);
    const at::Tensor ours =
        log_probabilities(on_rank, ids.view({1, ids.numel()}), model.vocab_size);
    REQUIRE(ours.sizes() == expected.sizes());
    CHECK(ours.sub(expected).abs().max().item().toDouble() <= tolerance::kHuggingFaceF32);
  }
}
