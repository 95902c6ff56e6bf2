#include "smp/plan/model/layer_tensors.h"

#include "smp/plan/base/check.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::model {

int64_t TensorSpec::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

namespace {

TensorSpec batch_of(const SampleShape& sample, const LayerCall& call) {
  TensorSpec tensor{{call.micro_batch}, call.dtype};
  tensor.shape.insert(tensor.shape.end(), sample.begin(), sample.end());
  return tensor;
}

}  // namespace

std::vector<TensorSpec> outputs_of(const ModelSpec& model, const LayerSpec& layer,
                                   const LayerCall& call) {
  if (makes_loss(layer.kind)) return {};
  if (is_list(model)) {
    const TensorPlace place{call.tensor_degree, call.tensor_rank};
    return {batch_of(operators_of(model, layer, place).back().out, call)};
  }
  const int64_t sequence = call.own_tokens() / call.micro_batch;
  const TensorSpec hidden{{call.micro_batch, sequence, model.hidden_size}, call.dtype};
  if (layer.kind == LayerKind::kMtpBlock) {
    return std::vector(static_cast<size_t>(mtp_depth(model, layer)) + 1, hidden);
  }
  if (model.stack != Stack::kEncoderDecoder) return {hidden};
  const TensorSpec table{{kRelativeBuckets, model.num_heads / call.attention_degree()}, call.dtype};
  if (layer.kind == LayerKind::kCrossBlock) {
    if (closes_stack(model, layer)) return {hidden};
    return {hidden, hidden, table};
  }
  if (closes_stack(model, layer)) return {hidden, hidden, table};
  return {hidden, table, hidden, table};
}

int64_t shared_inputs_of(const ModelSpec& model, const LayerSpec& layer) {
  if (layer.kind == LayerKind::kMtpBlock) {
    const int64_t depth = mtp_depth(model, layer);
    return depth == 1 ? 0 : depth;
  }
  if (layer.kind == LayerKind::kHead && model.num_mtp_layers > 1) return model.num_mtp_layers;
  if (layer.kind == LayerKind::kCrossBlock) return 2;
  return is_in_encoder(model, layer) ? 3 : 0;
}

TensorSpec field_of(const ModelSpec& model, BatchField field, const LayerCall& call) {
  switch (field) {
    case BatchField::kTokens:
      // The encoder's, then the decoder's.
      if (model.stack == Stack::kEncoderDecoder) {
        return {{2, call.micro_batch, call.sequence_length}, DType::kI64};
      }
      return {{call.micro_batch, call.sequence_length}, DType::kI64};
    case BatchField::kDocumentStarts:
      return {{call.micro_batch, call.sequence_length * call.context.exchange}, DType::kI64};
    case BatchField::kTargets:
      // Of the next token, then of each further one.
      if (model.num_mtp_layers > 0) {
        return {{1 + model.num_mtp_layers, call.micro_batch, call.sequence_length}, DType::kI64};
      }
      return {{call.micro_batch, call.sequence_length}, DType::kI64};
    case BatchField::kFurtherTokens:
      return {{model.num_mtp_layers, call.micro_batch, call.sequence_length}, DType::kI64};
    case BatchField::kImages: return batch_of(input_of(model), call);
    case BatchField::kLabels: return {{call.micro_batch}, DType::kI64};
  }
  check_failed(__FILE__, __LINE__, "unknown field of a batch");
}

TokenSlices slices_of(BatchField field, const LayerCall& call) {
  switch (field) {
    case BatchField::kTokens:
    case BatchField::kFurtherTokens:
    case BatchField::kTargets: return call.slices();
    case BatchField::kDocumentStarts: return call.attended();
    case BatchField::kImages:
    case BatchField::kLabels: return {};
  }
  check_failed(__FILE__, __LINE__, "unknown field of a batch");
}

BatchField source_of(BatchField field) {
  return field == BatchField::kFurtherTokens ? BatchField::kTokens : field;
}

TensorSpec read_field_of(const ModelSpec& model, BatchField field, const LayerCall& call) {
  LayerCall whole = call;
  whole.sequence_length *= call.context.degree();
  whole.context = {};
  if (looks_ahead(model, field)) {
    return {{whole.micro_batch, whole.sequence_length}, DType::kI64};
  }
  return field_of(model, field, whole);
}

bool is_taken(const ModelSpec& model, BatchField field, const LayerCall& call) {
  return !slices_of(field, call).are_whole() || looks_ahead(model, field);
}

bool looks_ahead(const ModelSpec& model, BatchField field) {
  return field == BatchField::kFurtherTokens ||
         (field == BatchField::kTargets && model.num_mtp_layers > 0);
}

bool reads_document_starts(const JobSpec& job, const LayerSpec& layer) {
  if (job.training.data_pack == Packing::kConcatenate) return false;
  if (is_transformer_block(layer.kind)) return true;
  return layer.kind == LayerKind::kEmbedding &&
         job.model.position_embedding == PositionKind::kLearned;
}

int64_t bytes_of(const std::vector<TensorSpec>& tensors) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

int64_t gradient_bytes_of(const std::vector<TensorSpec>& tensors) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) bytes += tensor.has_gradient() ? tensor.bytes() : 0;
  return bytes;
}

}  // namespace smp::model
