#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "smp/plan/data/packing.h"
#include "smp/plan/data/token_stream.h"

namespace smp::data {

// Where samples go; null = not wanted. For a batch of `count` samples of L tokens, tokens are
// [count, L], or [2, count, L] where a sample has two sequences; targets and document_starts are
// [count, L].
struct TokenBuffers {
  int64_t* tokens = nullptr;
  int64_t* targets = nullptr;
  int64_t* document_starts = nullptr;
};

// How the tokens of a stream become samples.
struct SampleForm {
  int64_t length = 0;     // L: tokens of a sequence
  int64_t sequences = 1;  // of a sample; 2: an encoder's and a decoder's
  Packing pack = Packing::kConcatenate;
  bool truncates = false;  // pad: documents longer than L lose their end
  bool has_mask = false;

  int64_t sample_tokens() const { return sequences * length; }
};

// A part of a stream, between two documents or tokens, as a list of samples. Immutable; safe from
// any thread. `stream` and `packed`, which keeps the packed blocks, must outlive it.
class TokenSamples {
 public:
  // Tokens [begin, end) of the stream; with pack: pad, the documents that begin there.
  TokenSamples(const TokenStream& stream, const SampleForm& form, int64_t begin, int64_t end,
               PackedBlocks& packed);
  // Documents [first, last), padded.
  static TokenSamples of_documents(const TokenStream& stream, const SampleForm& form, int64_t first,
                                   int64_t last, PackedBlocks& packed);

  int64_t count() const { return count_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

  // Sample `sample` as sample `k` of a batch of `count`. Throws as TokenStream::read() does.
  void read(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
            ReadScratch& scratch) const;

  // The pieces that a sample consists of, in its order. They have no document numbers if documents
  // are unknown.
  std::vector<DocumentPiece> pieces(int64_t sample, ReadScratch& scratch) const;

 private:
  void read_window(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
                   ReadScratch& scratch) const;
  void read_pieces(std::span<const DocumentPiece> row, int64_t k, const TokenBuffers& out,
                   ReadScratch& scratch) const;
  void read_counted(int64_t begin, int64_t count, ReadScratch& scratch) const;
  void put_targets(const ReadScratch& from, int64_t first, int64_t count, int64_t* to) const;
  std::vector<DocumentPiece> padded(int64_t sample) const;
  std::shared_ptr<const PackedBlock> block_of(int64_t sample, ReadScratch& scratch) const;

  const TokenStream* stream_;
  PackedBlocks* packed_;
  SampleForm form_;
  int64_t begin_ = 0, end_ = 0;  // tokens; documents where these are padded
  int64_t count_ = 0;
};

}  // namespace smp::data
