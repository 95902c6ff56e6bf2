#include "smp/plan/data/token_samples.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/data/data_files.h"

namespace smp::data {
namespace {

constexpr int64_t kDecoderStart = 0;  // T5's decoder_start_token_id
constexpr int64_t kPaddingToken = 0;  // any: nothing that counts attends to it

}  // namespace

TokenSamples::TokenSamples(const TokenStream& stream, const SampleForm& form, int64_t begin,
                           int64_t end, PackedBlocks& packed)
    : stream_(&stream), packed_(&packed), form_(form), begin_(begin), end_(end) {
  SMP_CHECK(form.pack != Packing::kPad);
  const int64_t tokens = std::max<int64_t>(end - begin, 0);
  // The last token of a sequence has its target behind it.
  count_ = form.sequences == 1 ? std::max<int64_t>(tokens - 1, 0) / form.length
                               : tokens / form.sample_tokens();
}

TokenSamples TokenSamples::of_documents(const TokenStream& stream, const SampleForm& form,
                                        int64_t first, int64_t last, PackedBlocks& packed) {
  SampleForm windows = form;
  windows.pack = Packing::kConcatenate;
  TokenSamples samples(stream, windows, first, first, packed);
  samples.form_ = form;
  samples.end_ = last;
  samples.count_ = last - first;
  return samples;
}

void TokenSamples::read(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
                        ReadScratch& scratch) const {
  SMP_CHECK(sample >= 0 && sample < count_);
  if (form_.pack == Packing::kConcatenate) {
    read_window(sample, k, count, out, scratch);
  } else if (form_.pack == Packing::kPad) {
    read_pieces(padded(sample), k, out, scratch);
  } else {
    const auto block = block_of(sample, scratch);
    read_pieces(block->rows[static_cast<size_t>(sample % kPackedTogether)], k, out, scratch);
  }
}

// Tokens [begin, begin + count) of the stream, and which of them count.
void TokenSamples::read_counted(int64_t begin, int64_t count, ReadScratch& scratch) const {
  scratch.tokens.resize(static_cast<size_t>(count));
  stream_->read(begin, count, scratch.tokens.data(), scratch);
  if (!form_.has_mask) return;
  scratch.counts.resize(static_cast<size_t>(count));
  stream_->read_mask(begin, count, scratch.tokens.data(), scratch.counts.data(), scratch);
}

// Tokens [first, first + count) of what was read, where they count.
void TokenSamples::put_targets(const ReadScratch& from, int64_t first, int64_t count,
                               int64_t* to) const {
  const int64_t* tokens = from.tokens.data() + first;
  if (!form_.has_mask) {
    std::copy_n(tokens, count, to);
    return;
  }
  const uint8_t* counts = from.counts.data() + first;
  for (int64_t i = 0; i < count; ++i) to[i] = counts[i] != 0 ? tokens[i] : kNoTarget;
}

void TokenSamples::read_window(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
                               ReadScratch& scratch) const {
  const int64_t length = form_.length;
  const bool is_pair = form_.sequences == 2;
  const int64_t first_target = is_pair ? length : 1;
  read_counted(begin_ + sample * form_.sample_tokens(), is_pair ? 2 * length : length + 1, scratch);
  if (out.targets != nullptr) put_targets(scratch, first_target, length, out.targets + k * length);
  if (out.document_starts != nullptr) std::fill_n(out.document_starts + k * length, length, 0);
  if (out.tokens == nullptr) return;
  std::copy_n(scratch.tokens.begin(), length, out.tokens + k * length);
  if (!is_pair) return;
  int64_t* decoder = out.tokens + (count + k) * length;
  decoder[0] = kDecoderStart;
  std::copy_n(scratch.tokens.begin() + length, length - 1, decoder + 1);
}

std::vector<DocumentPiece> TokenSamples::padded(int64_t sample) const {
  const int64_t document = begin_ + sample;
  const int64_t first = stream_->document_begin(document);
  const int64_t whole = stream_->document_begin(document + 1) - first;
  if (whole == 0) return {};
  SMP_CHECK(whole <= form_.length || form_.truncates);
  const int64_t length = std::min(whole, form_.length);
  return {{.begin = first,
           .length = length,
           .document = document,
           .offset = 0,
           .ends = length == whole}};
}

// The files that say where its documents lie are read by it, also where they were read before.
std::shared_ptr<const PackedBlock> TokenSamples::block_of(int64_t sample,
                                                          ReadScratch& scratch) const {
  const int64_t number = sample / kPackedTogether;
  auto block = packed_->get(this, number, [&]() -> PackedBlock {
    const int64_t first = number * kPackedTogether;
    const int64_t rows = std::min(kPackedTogether, count_ - first);
    const int64_t begin = begin_ + first * form_.length;
    ReadScratch own;
    const auto pieces = stream_->pieces(begin, begin + rows * form_.length, own);
    std::sort(own.touched.begin(), own.touched.end());
    own.touched.erase(std::unique(own.touched.begin(), own.touched.end()), own.touched.end());
    return {pack_best_fit(pieces, rows, form_.length), std::move(own.touched)};
  });
  scratch.touched.insert(scratch.touched.end(), block->files.begin(), block->files.end());
  return block;
}

void TokenSamples::read_pieces(std::span<const DocumentPiece> row, int64_t k,
                               const TokenBuffers& out, ReadScratch& scratch) const {
  const int64_t length = form_.length;
  int64_t at = 0;
  const auto put_start = [&](int64_t start, int64_t count) {
    if (out.document_starts != nullptr)
      std::fill_n(out.document_starts + k * length + start, count, start);
  };
  for (const DocumentPiece& piece : row) {
    read_counted(piece.begin, piece.length + (piece.ends ? 0 : 1), scratch);
    if (out.tokens != nullptr)
      std::copy_n(scratch.tokens.begin(), piece.length, out.tokens + k * length + at);
    if (out.targets != nullptr) {
      int64_t* to = out.targets + k * length + at;
      put_targets(scratch, 1, piece.length - (piece.ends ? 1 : 0), to);
      if (piece.ends) to[piece.length - 1] = kNoTarget;
    }
    put_start(at, piece.length);
    at += piece.length;
  }
  put_start(at, length - at);
  if (out.tokens != nullptr) std::fill_n(out.tokens + k * length + at, length - at, kPaddingToken);
  if (out.targets != nullptr) std::fill_n(out.targets + k * length + at, length - at, kNoTarget);
}

std::vector<DocumentPiece> TokenSamples::pieces(int64_t sample, ReadScratch& scratch) const {
  SMP_CHECK(sample >= 0 && sample < count_);
  if (form_.pack == Packing::kPad) return padded(sample);
  if (form_.pack == Packing::kDocuments) {
    const auto block = block_of(sample, scratch);
    const auto row = block->rows[static_cast<size_t>(sample % kPackedTogether)];
    return {row.begin(), row.end()};
  }
  const int64_t begin = begin_ + sample * form_.sample_tokens();
  if (stream_->documents()) return stream_->pieces(begin, begin + form_.sample_tokens(), scratch);
  return {{.begin = begin, .length = form_.sample_tokens(), .document = -1, .offset = begin}};
}

}  // namespace smp::data
