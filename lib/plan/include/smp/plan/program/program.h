#pragma once

#include <string>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/program/operation.h"

// A LayerProgram is what one call of a layer does on one tensor rank, as data: values, and the
// operations that make them, in order. The planner sums its bytes, flops and messages, the proof
// checks it, and a rank executes it. Immutable once built; safe to read from any thread.
//
//   forward        the outputs from the inputs
//   backward       the gradients of inputs and parameters, from what the forward has kept
//   weights        for schedules that put off the gradients of weights (zero bubble): `deferring`
//                  is the backward without their products, and `weights` are the products
//   rematerialize  for selective recompute: `dropped` again, from what else is kept
//
// Each value is written once. A value may lie in the memory of another: the other one is then
// overwritten, or seen in another shape.
// Memory is free after the last operation that uses it: nothing else says how long a tensor lives.
namespace smp::program {

// The name of a tied head's parameter: the weight of the token embedding.
inline constexpr std::string_view kTiedParameter = "tied";

enum class Role {
  kInput,           // the output of the layer before
  kBatch,           // a field of the batch
  kParameter,       // of this layer, or neighbouring ones as one matrix
  kGradient,        // of the parameter that stands before it in `values`; operations add to it
  kOutputGradient,  // the gradient of an output, which the layer behind has made
  kResult,          // made by an operation
};

// A size and what it counts: "tokens", "hidden". Of a dimension that ranks share, `parts` says
// between how many.
struct Dim {
  int64_t size = 1;
  const char* name = "";
  int64_t parts = 1;
};

struct Value {
  std::string name;
  Role role = Role::kResult;
  DType dtype = DType::kF32;
  std::vector<Dim> shape;      // of this rank
  ValueId memory = kNoValue;   // the first value in its memory; its own id if that is its own
  std::string last_parameter;  // of joined parameters; the first is `name`

  int64_t elements() const;
  int64_t bytes() const { return elements() * bytes_of(dtype); }
};

enum class Section { kForward, kBackward, kDeferring, kWeights, kRematerialize };
inline constexpr int kSections = 5;
std::string_view name_of(Section section);

// A fusion that the program has (fusions.h), and in how many places.
struct AppliedFusion {
  std::string_view name;
  int places = 0;
};

struct LayerProgram {
  std::vector<Value> values;
  std::vector<Operation> sections[kSections];
  std::vector<ValueId> inputs;            // in the order of the call
  std::vector<ValueId> outputs;           // likewise; may be inputs that the layer passes on
  std::vector<ValueId> output_gradients;  // of each output; kNoValue for none
  std::vector<ValueId> input_gradients;   // of each input; kNoValue for integers and the batch
  std::vector<ValueId> deferred_input_gradients;  // what `deferring` makes of them
  std::vector<ValueId> saved;    // what the backward reads of inputs and of what the forward made
  std::vector<ValueId> dropped;  // of these, what selective recompute makes again
  std::vector<ValueId> reread;   // of these, what only making it again reads
  std::vector<AppliedFusion> fusions;

  const std::vector<Operation>& section(Section section) const {
    return sections[static_cast<int>(section)];
  }
  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // What the backward hands on as the gradients of the inputs.
  const std::vector<ValueId>& gradients_of(Section backward) const {
    return backward == Section::kDeferring ? deferred_input_gradients : input_gradients;
  }
};

// Sets `saved`, `dropped` and `reread` from what the sections read, after the operations have
// changed.
void find_saved(LayerProgram& program);

}  // namespace smp::program
