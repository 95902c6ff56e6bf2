#include <ATen/core/Tensor.h>

#include <cstdio>
#include <exception>

#include "ledger/tensor_factories.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "state_weights_folder.h"

// smp_weights_log_probabilities FOLDER TEXT OUT: what the worker's layers say of the bytes of TEXT
// under the weights in FOLDER, one fp32 tensor "log_probabilities" in the safetensors file OUT. For
// scripts/check-weights-transformers.
int main(int argc, char** argv) {
  using namespace smp;
  if (argc != 4) {
    std::fprintf(stderr, "usage: smp_weights_log_probabilities FOLDER TEXT OUT\n");
    return 2;
  }
  try {
    const std::string folder = argv[1];
    const std::string text = argv[2];
    const ModelSpec model = test::model_of_folder(folder);
    const test::ModelOnRank on_rank(model, test::weights_of_folder(model, folder, at::kFloat),
                                    nullptr);
    const at::Tensor tokens =
        ledger::empty_tensor({1, static_cast<int64_t>(text.size())}, at::kLong);
    for (size_t i = 0; i < text.size(); ++i) {
      tokens.data_ptr<int64_t>()[i] = static_cast<unsigned char>(text[i]);
    }
    const at::Tensor result = test::log_probabilities(on_rank, tokens, model.vocab_size);
    safetensors::SafetensorsWriter writer(
        argv[3], {{"log_probabilities", DType::kF32, result.sizes().vec()}});
    writer.append("log_probabilities", result.const_data_ptr(),
                  result.numel() * bytes_of(DType::kF32));
    writer.finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
