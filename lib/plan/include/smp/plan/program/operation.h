#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/program/attributes.h"

// The operations of which layers are made. Each kind has one entry in a table (rules_of()): the
// names of its operands, its work, and the memory that it needs beside them. lib/runtime has one
// kernel for each (kernels of program_layer.cpp). An operation knows sizes and constants; the
// seed, the step and the samples are those of the call.
namespace smp::program {

// Index of a value in LayerProgram::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an operand that a layer does not have

enum class OperationKind : uint8_t {
  kNorm,
  kNormAgain,
  kNormBackward,
  kSumAndNorm,
  kProduct,
  kInputGradient,
  kWeightGradient,
  kAddBias,
  kBiasGradient,
  kAttention,
  kAttentionBackward,
  kQkSquares,
  kQkNorm,
  kQkNormSums,
  kQkNormBackward,
  kLatentHeads,
  kLatentHeadsBackward,
  kSplitColumns,
  kJoinColumns,
  kPlaceColumns,
  kTakeColumns,
  kActivation,
  kActivationBackward,
  kDrop,
  kAdd,
  kAddBranch,
  kScale,
  kCopy,
  kCast,
  kAccumulate,
  kTakeRows,
  kAddRows,
  kAddPositions,
  kPositionGradient,
  kLogits,
  kSoftmaxLoss,
  kSoftmaxGradient,
  kOwnTokens,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kWait,
  kConvolution,
  kConvolutionInputGradient,
  kConvolutionWeightGradient,
  kRelu,
  kReluBackward,
  kTanh,
  kTanhBackward,
  kMaxPool,
  kMaxPoolBackward,
  kMeanPool,
  kMeanPoolBackward,
  kReshape,
  kGatherChannels,
  kOwnChannels,
  kRouterScores,
  kRoute,
  kRouteBackward,
  kExpertLoad,
  kRouterInputGradient,
  kRouterWeightGradient,
  kSigmoid,
  kSigmoidBackward,
  kSortByExpert,
  kDispatch,
  kCombine,
  kExpertProduct,
  kExpertInputGradient,
  kExpertWeightGradient,
  kExpertBiasGradient,
  kExpertActivation,
  kExpertActivationBackward,
  kExchange,
  kExpertCounts,
  kTakeWeights,
  kPutWeights,
  kSendRows,
  kReturnRows,
  kRowsByExpert,
  kRowsByRank,
  // Of other frameworks (habits.h): priced, and not run by the engine.
  kRotate,
  kRotateBackward,
  kHeadNorms,
  kHeadNormsBackward,
  kRepeatHeads,
  kRepeatHeadsBackward,
  kScores,
  kScoresBackward,
  kSoftmax,
  kSoftmaxBackward,
  kWeightedValues,
  kWeightedValuesBackward,
  kMultiply,
  kMultiplyBackward,
  kScan,
  kScanBackward,
  kAllToAll,
};
inline constexpr int kOperationKinds = static_cast<int>(OperationKind::kAllToAll) + 1;

using Attributes =
    std::variant<std::monostate, DropoutAttributes, NormAttributes, SumAndNormAttributes,
                 ProductAttributes, AttentionAttributes, QkNormAttributes, LatentAttributes,
                 ActivationAttributes, RowsAttributes, LossAttributes, MessageAttributes,
                 OwnTokensAttributes, ImageAttributes, ChannelAttributes, RouterAttributes,
                 ExpertAttributes, ScanAttributes, ExchangeAttributes, RowExchangeAttributes,
                 ColumnsAttributes>;

// Scratch memory of an operation is what its entry in the table says.
inline constexpr int64_t kScratchOfRules = -1;

struct Operation {
  OperationKind kind = OperationKind::kNorm;
  std::vector<ValueId> inputs;     // as OperationRules::inputs names them; kNoValue: absent
  std::vector<ValueId> outputs;    // likewise
  std::vector<ValueId> gradients;  // of parameters; it adds to them
  Attributes attributes;
  int64_t scratch_bytes = kScratchOfRules;  // beside its operands

  template <typename T>
  const T& as() const {
    return std::get<T>(attributes);
  }
  ValueId in(size_t i) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  ValueId out(size_t i) const { return i < outputs.size() ? outputs[i] : kNoValue; }
};

// What an operation mostly does.
enum class KernelClass { kProduct, kAttention, kElements, kRows, kMessage, kView };

struct LayerProgram;

// An operation of a program, for the functions of its rules.
struct PlacedOperation {
  const LayerProgram& program;
  const Operation& operation;

  int64_t rows(ValueId value) const;  // of a matrix: its first dimension
  int64_t cols(ValueId value) const;  // the other ones together
  int64_t elements(ValueId value) const;
  DType dtype(ValueId value) const;
};

struct OperationRules {
  std::string_view name;  // "norm"
  KernelClass kernel = KernelClass::kElements;
  std::string_view inputs, outputs;  // their names, separated by spaces; '?' marks optional ones
  // Of its table, and of the table's gradient, only the rows that it uses are moved.
  bool moves_rows = false;
  // Multiplications and additions. nullptr: none that count.
  double (*flops)(const PlacedOperation& placed) = nullptr;
  // Most bytes that a call holds at once beside its operands. nullptr: none.
  int64_t (*scratch_bytes)(const PlacedOperation& placed) = nullptr;
  // The collective of a message.
  mesh::CollectiveOp message = mesh::CollectiveOp::kAllReduce;
};
const OperationRules& rules_of(OperationKind kind);

}  // namespace smp::program
