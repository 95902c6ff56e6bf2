#include "cost/operation_work.h"

#include <algorithm>
#include <cmath>

#include "links/rate.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/spec/seen_pairs.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {
namespace {

using program::KernelClass;
using program::Operation;
using program::OperationKind;
using program::ValueId;

// Kernels that add one chunk's part to ring attention's sums (Transformer Engine's
// context_parallel.py).
constexpr double kPartKernels = 6;
// An RMSNorm written with plain operators: cast to fp32, square, mean, scale, cast, weight.
constexpr double kUnfusedRmsNorm = 5;
// Drawing whether an element stays takes as long as so many flops of an fp32 matmul: 7 rounds of
// Philox4x32 for 8 elements. Measured on a core of an EPYC 9005: 0.22 to 0.26 ns with AVX-512, in
// residual sums and in attention of 256 to 1,024 tokens, where matmuls run at 190 Gflop/s
// (configs/jobs/quickstart.yaml); 0.5 ns with AVX2, which halves that rate too.
constexpr double kDrawFlops = 45;
// Columns are drawn so many at a time (dropout_mask.h of the runtime).
constexpr double kDrawnTogether = 128;
// Share of the matmul rate that the kernels of Mamba-2's scan reach: that of flash attention's
// backward, whose products are as small. No figures of the scan's kernels alone are published.
constexpr double kScanRate = 0.29;
// Of a forward scan: sums of time steps, states of chunks, their passing on, scores.
constexpr double kScanKernels = 4;

double drawn(double columns) { return std::ceil(columns / kDrawnTogether) * kDrawnTogether; }

// The kernels of one operation.
class Kernels {
 public:
  Kernels(const PricedCall& call, const program::LayerProgram& program, const Operation& operation)
      : call_(call), program_(program), operation_(operation) {}

  KernelWork work();

 private:
  double elements(ValueId id) const {
    return id == program::kNoValue ? 0 : static_cast<double>(program_.value(id).elements());
  }
  double rows(ValueId id) const {
    return static_cast<double>(program_.value(id).shape.front().size);
  }
  double cols(ValueId id) const { return elements(id) / rows(id); }
  ValueId in(size_t i) const { return operation_.in(i); }
  ValueId out(size_t i) const { return operation_.out(i); }

  // Memory-bound kernels: values read and written, in elements.
  void passes(double values, double kernels) {
    work_.bytes += call_.element * values;
    work_.kernels += kernels;
  }
  // All that it reads and writes.
  void natural(double kernels) {
    double values = 0;
    for (const ValueId id : operation_.inputs) values += elements(id);
    for (const ValueId id : operation_.outputs) values += elements(id);
    passes(values, kernels);
  }

  // A router's, which is in fp32: [rows, in] -> [rows, out].
  void router(double rows, double in, double out) {
    work_.matmul_s += matmul_s(call_.wide_rates, 1, rows, out, in);
    work_.kernels += 1;
  }
  // `copies` products of so many rows side by side: x [rows, in] -> [rows, out].
  void product(double copies, double rows, double in, double out, bool is_forward) {
    work_.matmul_s += is_forward ? matmul_s(call_.rates, copies, rows, out, in)
                                 : matmul_s(call_.rates, copies, rows, in, out);
    work_.kernels += 1;
    if (const double cast = call_.cast_bytes; cast > 0) {  // of Transformer Engine
      work_.bytes +=
          copies * cast * (is_forward ? rows * in + call_.weight_casts * in * out : rows * out);
      work_.kernels += is_forward ? 4 : 2;
    }
    // A quantized matrix is written in 16 bits before each of its matmuls.
    if (call_.stored_bytes > 0) {
      work_.bytes += (call_.stored_bytes + call_.element) * copies * in * out;
      work_.kernels += 1;
    }
  }
  void weight_gradient(double copies, double rows, double in, double out) {
    work_.matmul_s += matmul_s(call_.rates, copies, out, in, rows);
    work_.kernels += 1;
    if (call_.cast_bytes > 0) work_.kernels += 2;
    double sums = 2 * call_.gradient_bytes;
    if (!call_.framework.fused_weight_gradients) sums += call_.element;
    if (call_.sums_beside) sums += call_.element + 2 * kFp32Bytes;
    work_.bytes += sums * copies * in * out;
  }

  void norm(double values, bool is_forward) {
    const double fused = call_.fused                              ? 1
                         : call_.model.norm == NormKind::kRmsNorm ? kUnfusedRmsNorm
                                                                  : 1.5;
    passes((is_forward ? 2 : 4) * fused * values, fused * (is_forward ? 1 : 2));
  }

  void drop(double rows, double cols, bool has_mask) {
    passes((has_mask ? 2.5 : 2) * rows * cols, 1);  // a mask of a byte
    if (!has_mask) work_.draws += rows * drawn(cols);
  }

  void attention(const program::AttentionAttributes& a, bool is_forward);
  void rotate(const program::AttentionAttributes& a) {
    const double turned =
        static_cast<double>(a.batch * a.sequence * (a.heads + a.kv_heads) * a.head_dim);
    passes((call_.fused ? 2 : 8) * turned, call_.fused ? 1 : 8);
  }
  void head_norms(const program::AttentionAttributes& a, bool is_forward) {
    norm(static_cast<double>(a.batch * a.sequence * (a.heads + a.kv_heads) * a.head_dim),
         is_forward);
  }
  // All pairs of a query and a key, in one of the two products.
  void scores(const program::AttentionAttributes& a, bool is_forward);
  void gather_heads(const program::AttentionAttributes& a) {
    passes(2 * static_cast<double>(a.batch * a.sequence * a.heads * a.value_width()), 1);
  }
  void activation(bool is_forward);
  void gated(double values, bool gated, bool is_forward) {
    if (!gated) return passes((is_forward ? 2 : 3) * values, 1);
    const bool fused = call_.fused && call_.framework.fused_gate;
    if (is_forward) return passes((fused ? 3 : 5) * values, fused ? 1 : 2);
    passes((fused ? 5 : 8) * values, fused ? 1 : 3);
  }
  void experts(const program::ExpertAttributes& experts);
  void scan(const program::ScanAttributes& scan, bool is_forward);
  void convolution();
  void loss(bool is_forward) {
    // In fp32: copy, maximum, exponentials and their sum, and the gradient in place.
    const double width = call_.framework.fp32_logits ? kFp32Bytes : call_.element;
    const double logits = elements(is_forward ? in(0) : out(0));
    work_.bytes += logits * (call_.element + (is_forward ? 5 : 3) * width);
    work_.kernels += is_forward ? 10 : 6;
  }

  const PricedCall& call_;
  const program::LayerProgram& program_;
  const Operation& operation_;
  KernelWork work_;
};

void Kernels::attention(const program::AttentionAttributes& a, bool is_forward) {
  const double s = static_cast<double>(a.sequence), context = static_cast<double>(a.keys);
  const double pairs = static_cast<double>(a.batch * a.heads);
  const double key_dim = static_cast<double>(a.head_dim);
  const double value_dim = static_cast<double>(a.value_width());
  // Causal kernels skip the upper half, and what no window reaches.
  const double seen = a.causal ? seen_pairs(call_.model, context) / (context * context) : 1.0;
  const double flops = 2 * seen * pairs * s * context * (key_dim + value_dim);
  const bool waves = call_.core_rates.multiprocessors > 0;
  // Head dimensions run padded to 64 or 128.
  const double wide = (key_dim + value_dim) / 2;
  const double used = waves ? wide / (wide <= 64 ? 64 : std::ceil(wide / 128) * 128) : 1;
  const double narrow = waves && wide <= 64 ? 0.8 : 1;
  const double rate = call_.core_rates.flops_per_s * used * narrow;
  const framework::FrameworkModel& framework = call_.framework;
  work_.matmul_s += is_forward
                        ? links::over(flops, rate * (waves ? framework.attention_forward_rate : 1))
                        : links::over(waves ? 2.5 * flops : 2 * flops,
                                      rate * (waves ? framework.attention_backward_rate : 1));
  work_.kernels += is_forward ? 1 : 3;
  const auto others = static_cast<double>(a.context_degree - 1);
  if (waves && others > 0) {
    // Ring attention adds up what each further chunk of keys gives: the output in fp32, and its
    // scale, forward; the gradients of queries, keys and values backward.
    const double part_rows = others * static_cast<double>(a.batch) * s;
    const double output = part_rows * static_cast<double>(a.heads) * value_dim;
    const double keys = part_rows * static_cast<double>(a.kv_heads) * (key_dim + value_dim);
    work_.bytes += is_forward ? (3 * kFp32Bytes + call_.element) * output
                              : (2 * kFp32Bytes + call_.element) * (output + keys);
    work_.kernels += kPartKernels * others;
  }
  if (call_.draws_dropout && a.weight_dropout.is_on()) {
    // A causal query's last draws reach half of those that are drawn together beyond its keys.
    const double of_query =
        std::min(drawn(context), seen < 1 ? seen * context + kDrawnTogether / 2 : drawn(context));
    work_.draws += pairs * s * of_query;
  }
  if (a.rotary.dim > 0) rotate(a);
  if (a.has_head_norms) head_norms(a, is_forward);
}

void Kernels::scores(const program::AttentionAttributes& a, bool is_forward) {
  const bool is_first = operation_.kind == OperationKind::kScores ||
                        operation_.kind == OperationKind::kScoresBackward;
  const double pairs = static_cast<double>(a.batch * a.heads);
  const double s = static_cast<double>(a.sequence), context = static_cast<double>(a.keys);
  const double seconds =
      is_first
          ? matmul_s(call_.core_rates, pairs, s, context, static_cast<double>(a.head_dim))
          : matmul_s(call_.core_rates, pairs, s, static_cast<double>(a.value_width()), context);
  work_.matmul_s += is_forward ? seconds : 2 * seconds;
  work_.kernels += is_forward ? 2 : 4;
  if (!is_first) gather_heads(a);  // heads are brought together: one copy each way
}

void Kernels::activation(bool is_forward) {
  const auto& attributes = operation_.as<program::ActivationAttributes>();
  // Of a gate that is a kernel of its own, half of the columns.
  const double values = elements(is_forward ? out(0) : in(2));
  if (!attributes.gated) return passes((is_forward ? 2 : 3) * values, 1);
  passes((is_forward ? 3 : 5) * values, 1);
}

void Kernels::experts(const program::ExpertAttributes& experts) {
  const auto count = static_cast<double>(experts.count);
  const double each = experts.expected_rows / count;
  switch (operation_.kind) {
    case OperationKind::kExpertProduct:
    case OperationKind::kExpertInputGradient: {
      const ValueId weight = in(1);
      return product(count, each, cols(weight), rows(weight) / count,
                     operation_.kind == OperationKind::kExpertProduct);
    }
    case OperationKind::kExpertWeightGradient:
      return weight_gradient(count, each, cols(in(1)), cols(in(0)));
    case OperationKind::kExpertActivation:
    case OperationKind::kExpertActivationBackward: {
      const bool is_forward = operation_.kind == OperationKind::kExpertActivation;
      const ValueId y = is_forward ? out(0) : in(5);
      const bool is_routed = in(3) != program::kNoValue;
      return gated((is_routed ? experts.expected_rows : rows(y)) * cols(y),
                   experts.activation.gated, is_forward);
    }
    case OperationKind::kExpertBiasGradient:
      return passes(experts.expected_rows * cols(in(0)), count);
    default: return passes(2 * std::min(experts.expected_rows, rows(out(0))) * cols(out(0)), 2);
  }
}

void Kernels::scan(const program::ScanAttributes& scan, bool is_forward) {
  const ValueId x = is_forward ? in(0) : in(1);
  const double tokens = rows(x);
  const auto convolved = static_cast<double>(scan.convolved);
  const auto inner = static_cast<double>(scan.inner);
  // The convolution.
  passes((is_forward ? 2 : 5) * tokens * convolved, is_forward ? 1 : 2);
  const bool waves = call_.core_rates.multiprocessors > 0;
  const double rate = call_.core_rates.flops_per_s * (waves ? kScanRate : 1);
  const double flops = program::rules_of(operation_.kind).flops({program_, operation_});
  work_.matmul_s += links::over(flops, rate);
  // Three kernels read the stream, B and C; states are written, passed on and read.
  const double values = 3 * convolved + 4 * scan.states * kFp32Bytes / call_.element;
  if (is_forward) return passes(tokens * values, kScanKernels);
  passes(tokens * (3 * values + 4 * inner), 2 * kScanKernels + 1);
}

// A product of patches, which are copied.
void Kernels::convolution() {
  const auto& image = operation_.as<program::ImageAttributes>();
  const bool is_forward = operation_.kind == OperationKind::kConvolution;
  const bool is_weights = operation_.kind == OperationKind::kConvolutionWeightGradient;
  const auto outputs = static_cast<double>(image.out[0]);
  const double pixels = call_.batch * static_cast<double>(model::elements_of(image.out)) / outputs;
  const auto patch = static_cast<double>(
      model::rules_of(image.spec.kind).parameters(image.spec, image.in)[0].cols);
  if (is_weights) {
    weight_gradient(1, pixels, patch, outputs);
  } else {
    product(1, pixels, patch, outputs, is_forward);
  }
  passes((is_forward ? 3 : 1.5) * pixels * patch, 1);
}

KernelWork Kernels::work() {
  const auto& attributes = operation_.attributes;
  if (const auto* of = std::get_if<program::ExpertAttributes>(&attributes)) {
    if (operation_.kind != OperationKind::kSortByExpert) experts(*of);
    return work_;
  }
  const auto attention_of = [&]() -> const program::AttentionAttributes& {
    return std::get<program::AttentionAttributes>(attributes);
  };
  switch (operation_.kind) {
    case OperationKind::kNorm:
    case OperationKind::kNormAgain: norm(elements(in(0)), true); break;
    case OperationKind::kNormBackward: norm(elements(in(0)), false); break;
    case OperationKind::kQkNorm:
    case OperationKind::kQkNormBackward: {
      const auto& norms = operation_.as<program::QkNormAttributes>();
      norm(rows(in(0)) * static_cast<double>(norms.q_cols + norms.k_cols),
           operation_.kind == OperationKind::kQkNorm);
      break;
    }
    // Parts of the norm.
    case OperationKind::kQkSquares:
    case OperationKind::kQkNormSums: break;
    case OperationKind::kProduct:
    case OperationKind::kLogits: product(1, rows(in(0)), cols(in(0)), rows(in(1)), true); break;
    case OperationKind::kRouterScores: router(rows(in(0)), cols(in(0)), rows(in(1))); break;
    case OperationKind::kRouterInputGradient: router(rows(in(0)), rows(in(1)), cols(in(1))); break;
    case OperationKind::kRouterWeightGradient: router(cols(in(0)), rows(in(0)), cols(in(1))); break;
    case OperationKind::kInputGradient:
      product(1, rows(in(0)), cols(in(1)), rows(in(1)), false);
      break;
    case OperationKind::kWeightGradient: {
      const ValueId gradient = operation_.gradients.empty() ? out(0) : operation_.gradients.front();
      weight_gradient(1, rows(in(0)), cols(gradient), rows(gradient));
      break;
    }
    case OperationKind::kBiasGradient: work_.bytes += call_.element * elements(in(0)); break;
    case OperationKind::kAddBias:
      if (call_.adds_biases) work_.bytes += 2 * call_.element * elements(in(0));
      break;
    case OperationKind::kAttention: attention(attention_of(), true); break;
    case OperationKind::kAttentionBackward: attention(attention_of(), false); break;
    case OperationKind::kRotate:
    case OperationKind::kRotateBackward: rotate(attention_of()); break;
    case OperationKind::kHeadNorms: head_norms(attention_of(), true); break;
    case OperationKind::kHeadNormsBackward: head_norms(attention_of(), false); break;
    case OperationKind::kScores:
    case OperationKind::kWeightedValues: scores(attention_of(), true); break;
    case OperationKind::kScoresBackward:
    case OperationKind::kWeightedValuesBackward: scores(attention_of(), false); break;
    // Scale, mask and softmax in one kernel, or one after the other with fp32 between.
    case OperationKind::kSoftmax:
      passes((call_.fused ? 2 : 9) * elements(in(0)), call_.fused ? 1 : 4);
      break;
    case OperationKind::kSoftmaxBackward:
      passes((call_.fused ? 3 : 7) * elements(in(0)), call_.fused ? 1 : 3);
      break;
    case OperationKind::kActivation: activation(true); break;
    case OperationKind::kActivationBackward: activation(false); break;
    case OperationKind::kMultiply: passes(3 * elements(out(0)), 1); break;
    case OperationKind::kMultiplyBackward: passes(5 * elements(in(0)), 2); break;
    case OperationKind::kDrop:
      drop(elements(in(0)) / static_cast<double>(program_.value(in(0)).shape.back().size),
           static_cast<double>(program_.value(in(0)).shape.back().size), !call_.draws_dropout);
      break;
    case OperationKind::kAddBranch:
      passes((out(1) == program::kNoValue ? 3 : 3.5) * elements(out(0)), 1);
      if (call_.draws_dropout && operation_.as<program::DropoutAttributes>().is_on()) {
        work_.draws += rows(out(0)) * drawn(cols(out(0)));
      }
      break;
    case OperationKind::kSumAndNorm:
      passes(4 * elements(out(0)), 1);
      if (operation_.as<program::SumAndNormAttributes>().dropout.is_on()) {
        work_.draws += rows(out(0)) * drawn(cols(out(0)));
      }
      break;
    case OperationKind::kAdd: passes(3 * elements(in(0)), 1); break;
    case OperationKind::kTakeRows: passes(2 * elements(out(0)), 4); break;
    // Gradients are sorted by token before they are added to rows.
    case OperationKind::kAddRows: passes(4 * elements(in(1)), 6); break;
    case OperationKind::kAddPositions: passes(3 * elements(out(0)), 0); break;
    case OperationKind::kPositionGradient: passes(2 * elements(in(0)), 0); break;
    case OperationKind::kSoftmaxLoss: loss(true); break;
    case OperationKind::kSoftmaxGradient: loss(false); break;
    case OperationKind::kRoute: passes(2 * elements(in(0)), 4); break;
    case OperationKind::kRouteBackward: passes(2 * elements(out(0)), 3); break;
    case OperationKind::kCombine:
      // As many rows as tokens have experts, of which this rank may have a part.
      passes(2 * std::min(elements(in(0)), elements(in(1)) * cols(out(0))), 2);
      break;
    case OperationKind::kScan: scan(std::get<program::ScanAttributes>(attributes), true); break;
    case OperationKind::kScanBackward:
      scan(std::get<program::ScanAttributes>(attributes), false);
      break;
    case OperationKind::kConvolution:
    case OperationKind::kConvolutionInputGradient:
    case OperationKind::kConvolutionWeightGradient: convolution(); break;
    // Products of gradients add these themselves; what is cast is counted with the products.
    case OperationKind::kAccumulate:
    case OperationKind::kCast:
    case OperationKind::kSortByExpert:
    case OperationKind::kExpertLoad: break;
    case OperationKind::kRowsByExpert:
    case OperationKind::kRowsByRank: {
      const double rows = operation_.as<program::RowExchangeAttributes>().expected_rows;
      passes(2 * rows * cols(in(0)), 1);
      break;
    }
    // Packed for the ranks, and unpacked.
    case OperationKind::kExchange: natural(2); break;
    default: {
      const KernelClass kernel = program::rules_of(operation_.kind).kernel;
      if (kernel != KernelClass::kView && kernel != KernelClass::kMessage) natural(1);
    }
  }
  return work_;
}

}  // namespace

double draw_s(const PricedCall& call, double draws) {
  return links::over(kDrawFlops * draws, matmul_rates(call.cluster, Precision::kFp32).flops_per_s);
}

KernelWork work_of(const PricedCall& call, const program::LayerProgram& program,
                   const program::Operation& operation) {
  return Kernels(call, program, operation).work();
}

}  // namespace smp::cost
