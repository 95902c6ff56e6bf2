#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"

// Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): beside a frozen matrix W [out, in] stand
// A [rank, in] and B [out, rank], and the output is W x + alpha / rank * B A x. Tensor ranks cut an
// adapter as they cut its matrix: B by rows beside rows of W, A by columns beside columns of W; the
// other half is whole on each rank. Pure; safe from any thread.
namespace smp::model {

// What a matrix reads. kMemory is the output of an encoder, kLowRank a compressed query or key.
enum class AdapterInput { kNorm, kMemory, kLowRank, kCore, kHidden };

// A matrix with an adapter.
struct AdaptedMatrix {
  std::string name;   // "attention.q"; of matrices that share an adapter "attention.qkv"
  std::string reads;  // matrices with the same word read one tensor
  AdapterInput input = AdapterInput::kNorm;
  ParameterSum in;  // columns and rows, by how tensor ranks share them
  ParameterSum out;
  bool is_expert = false;  // one of num_experts alike

  // Of A and B.
  ParameterSum parameters(int64_t rank) const;
};

// The words of training.lora.targets: matrices by their names in parameters_of();
// `attention.qkv` and `mlp.gate_up` give neighbouring matrices one adapter, as Megatron's fused
// linear layers have; `all_linear` is each linear layer of the blocks. The router of experts, the
// embedding and the head have no adapters.
const std::vector<std::string>& adapter_targets();

// The adapted matrices of a block; `targets` have no problem.
std::vector<AdaptedMatrix> adapted_matrices(const ModelSpec& model, LayerKind block,
                                            const std::vector<std::string>& targets,
                                            const TensorKinds& kinds = {});

// What is wrong with the list for this model, "" = nothing.
std::string problem_of_targets(const ModelSpec& model, const std::vector<std::string>& targets);

}  // namespace smp::model
