#include "program/layers/layers.h"
#include "program/layers/parts.h"
#include "smp/plan/model/parameter_counts.h"

// A vocabulary-parallel embedding: token rows, split over the tensor ranks and summed, plus (GPT-2)
// position rows, which every rank holds and adds after the sum. In an encoder_decoder it embeds the
// tokens of both stacks, [2, b, s], and passes on copies of the tables of relative positions,
// because with ZeRO-3 other layers reuse the buffer of its weights. The backward only adds rows, so
// there is nothing to defer.
namespace smp::program {
namespace {

class Embedding {
 public:
  explicit Embedding(ProgramBuilder& builder)
      : builder_(builder),
        region_(builder, builder.call().kinds.embedding),
        sequences_(builder.model().stack == Stack::kEncoderDecoder ? 2 : 1),
        weight_(builder.parameter("tokens.weight")),
        positions_(builder.parameter("positions.weight")),
        tables_{builder.parameter("relative.weight"),
                builder.parameter("decoder_relative.weight")} {}

  void forward() {
    ids_ =
        builder_.batch("tokens", {{sequences_ * builder_.call().tokens(), "tokens"}}, DType::kI64);
    LayerProgram& program = builder_.program();
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      program.outputs.push_back(embedded(sequence));
      if (sequences_ == 1) continue;
      const ValueId table = tables_[sequence];
      const int64_t parts = builder_.call().attention_degree();
      program.outputs.push_back(
          builder_.made(sequence == 0 ? "table" : "decoder's table",
                        {{model::kRelativeBuckets, "buckets"},
                         {builder_.model().num_heads / parts, "heads", parts}},
                        builder_.dtype()));
      builder_.add(OperationKind::kCopy, {table}, {program.outputs.back()});
    }
    const std::vector<ValueId> outputs = program.outputs;
    for (const ValueId output : outputs) builder_.output_gradient(output);
  }

  std::vector<ValueId> backward() {
    const std::vector<ValueId> given = builder_.program().output_gradients;
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      add_gradients(given[static_cast<size_t>(sequences_ * sequence)], sequence);
      if (sequences_ == 1) continue;
      builder_.add(OperationKind::kAccumulate, {given[static_cast<size_t>(2 * sequence + 1)]}, {},
                   {}, {builder_.gradient_of(tables_[sequence])});
    }
    return {kNoValue};
  }

 private:
  RowsAttributes rows(int64_t sequence, int64_t first) const {
    const int64_t begin =
        mesh::part_begin(builder_.model().vocab_size, region_.degree(), region_.rank());
    return {begin, sequence * builder_.call().tokens() + first, builder_.call().sequence_length};
  }
  RowsAttributes positions(int64_t first) const {
    const model::LayerCall& call = builder_.call();
    return {0,
            first,
            call.sequence_length,
            call.slices(),
            call.attended(),
            call.sequence_length * call.context.exchange};
  }
  // Of what goes to the next layer. The decoder's tokens are rows of a sample behind the encoder's.
  DropoutAttributes dropout(int64_t sequence) const {
    DropoutAttributes dropout = hidden_dropout(builder_, region_, DropoutSite::kOutput);
    dropout.first_row = sequence * builder_.call().sequence_length;
    return dropout;
  }

  // Of a shared vocabulary each rank has rows for any token; of a whole one it has all for its own.
  ValueId embedded(int64_t sequence) {
    const Dim hidden{builder_.model().hidden_size, "hidden"};
    const bool is_shared = region_.is_shared();
    ValueId x = builder_.made(
        "x", is_shared ? region_.all_tokens(hidden) : region_.own_tokens(hidden), builder_.dtype());
    builder_.add(OperationKind::kTakeRows, {ids_, weight_}, {x},
                 rows(sequence, is_shared ? 0 : region_.first_token()));
    if (is_shared) x = region_.summed(x, kForwardLabel);
    if (positions_ != kNoValue) {
      const ValueId placed = builder_.over("x + positions", x);
      builder_.add(OperationKind::kAddPositions, {x, positions_}, {placed},
                   positions(region_.first_token()));
      x = placed;
    }
    return drop_in_place(builder_, x, dropout(sequence));
  }

  // Every rank adds all positions.
  void add_gradients(ValueId gradient, int64_t sequence) {
    const ValueId dx =
        region_.gathered(dropped(builder_, gradient, dropout(sequence)), kBackwardLabel);
    builder_.add(OperationKind::kAddRows, {ids_, dx}, {}, rows(sequence, 0),
                 {builder_.gradient_of(weight_)});
    if (positions_ == kNoValue) return;
    builder_.add(OperationKind::kPositionGradient, {dx}, {}, positions(0),
                 {builder_.gradient_of(positions_)});
  }

  ProgramBuilder& builder_;
  const Region region_;
  const int64_t sequences_;
  const ValueId weight_, positions_;
  const ValueId tables_[2];
  ValueId ids_ = kNoValue;
};

}  // namespace

void build_embedding_forward(ProgramBuilder& builder) { Embedding(builder).forward(); }

void build_embedding(ProgramBuilder& builder) {
  Embedding embedding(builder);
  build_sections(builder, embedding);
}

}  // namespace smp::program
