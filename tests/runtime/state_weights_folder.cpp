#include "state_weights_folder.h"

#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>

#include "ledger/tensor_factories.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/check.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/tensorfiles/pretrained/huggingface_weights.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

namespace smp::test {
namespace {

at::ScalarType scalar_type_of(DType dtype) {
  SMP_CHECK(dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI64);
  if (dtype == DType::kI64) return at::kLong;
  return dtype == DType::kF32 ? at::kFloat : at::kDouble;
}

at::Tensor tensor_in(const safetensors::SafetensorsReader& reader, const std::string& name) {
  const safetensors::SafetensorsEntry* entry = reader.find(name);
  SMP_CHECK(entry != nullptr);
  const at::Tensor tensor = ledger::empty_tensor(entry->shape, scalar_type_of(entry->dtype));
  reader.read(*entry, tensor.data_ptr());
  return tensor;
}

}  // namespace

ModelSpec model_of_folder(const std::string& dir) {
  // Layers that predict further tokens are left out unless the job has them.
  const bool predicts_further = dir.ends_with("-mtp");
  const jobfile::JobSource job{
      dir + "/job.yaml", predicts_further ? "model: {hf_config: config.json, num_mtp_layers: 2}\n"
                                          : "model: {hf_config: config.json}\n"};
  return jobfile::read_job(importers::with_hf_model(job)).model;
}

NamedTensors weights_of_folder(const ModelSpec& model, const std::string& dir,
                               at::ScalarType type) {
  const pretrained::HuggingFaceWeights files(dir, model);
  NamedTensors weights;
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    for (const model::ParameterSpec& spec : model::parameters_of(model, layer)) {
      safetensors::TensorPiece piece{.name = spec.name,
                                     .shape = {spec.rows},
                                     .dtype = type == at::kDouble ? DType::kF64 : DType::kF32,
                                     .box = {0, spec.rows, 0, spec.cols},
                                     .end = spec.size()};
      if (!spec.is_vector) piece.shape.push_back(spec.cols);
      const at::Tensor tensor = ledger::empty_tensor(piece.shape, type);
      piece.data = static_cast<std::byte*>(tensor.data_ptr());
      files.read(piece);
      weights[spec.name] = tensor;
    }
  }
  return weights;
}

NamedTensors parameters_in(const ModelSpec& model,
                           const std::map<std::string, at::Tensor>& theirs) {
  std::map<std::string, std::vector<at::Tensor>> rows;  // of our parameters, in their order
  for (const huggingface::HuggingFaceTensor& tensor : huggingface::huggingface_tensors(model)) {
    const model::ParameterSpec& first = tensor.matrices.front().sources.front().parameter;
    if (first.follows_load && theirs.count(tensor.name) == 0) continue;
    const at::Tensor flat = theirs.at(tensor.name).reshape({-1});
    int64_t begin = 0;
    for (const huggingface::HuggingFaceMatrix& matrix : tensor.matrices) {
      const at::Tensor stored = flat.narrow(0, begin, matrix.size());
      const at::Tensor upright = matrix.transposed ? stored.view({matrix.cols(), matrix.rows()}).t()
                                                   : stored.view({matrix.rows(), matrix.cols()});
      begin += matrix.size();
      for (const huggingface::SourceRows& source : matrix.sources) {
        const at::Tensor own =
            upright.slice(0, source.first, c10::nullopt, source.step).narrow(0, 0, source.count());
        const bool is_vector = source.parameter.is_vector;
        rows[source.parameter.name].push_back(is_vector ? own.reshape({-1}) : own);
      }
    }
  }
  NamedTensors parameters;
  for (const auto& [name, parts] : rows) parameters[name] = at::cat(parts).contiguous();
  return parameters;
}

at::Tensor tensor_of_file(const std::string& path, const std::string& name) {
  return tensor_in(safetensors::SafetensorsReader(path), name);
}

at::Tensor log_probabilities(const ModelOnRank& model, const at::Tensor& tokens,
                             int64_t vocab_size) {
  const int64_t length = tokens.size(-1);
  const c10::InferenceMode no_gradients;
  std::vector<at::Tensor> tensors{tokens};
  const auto& layers = model.layers();
  const int64_t further = model.further_tokens();
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    if (static_cast<int64_t>(i) + 1 + further >= static_cast<int64_t>(layers.size())) {
      tensors.push_back(ledger::full_tensor({further, 1, length}, int64_t{0}, at::kLong));
    }
    tensors = layers[i]->forward(tensors, {}, nullptr);
  }
  const at::Tensor result = ledger::empty_tensor({length, vocab_size}, tensors.at(0).options());
  for (int64_t position = 0; position < length; ++position) {
    std::vector<at::Tensor> here;
    for (const at::Tensor& x : tensors) {
      here.push_back(x.view({1, length, -1}).narrow(1, position, 1).contiguous());
    }
    here.emplace_back();
    for (int64_t target = 0; target < vocab_size; ++target) {
      std::vector<int64_t> sizes{1, 1};
      if (further > 0) sizes.insert(sizes.begin(), 1 + further);
      here.back() = ledger::full_tensor(sizes, target, at::kLong);
      result[position][target] = -layers.back()->forward(here, {}, nullptr).front();
    }
  }
  return result;
}

}  // namespace smp::test
