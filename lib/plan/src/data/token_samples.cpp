#include "smp/plan/data/token_samples.h"

#include <algorithm>

#include "smp/plan/check.h"
#include "smp/plan/data/packing.h"
#include "smp/plan/data_files.h"

namespace smp {
namespace {

constexpr int64_t kDecoderStart = 0;  // T5's decoder_start_token_id
constexpr int64_t kPaddingToken = 0;  // any: nothing that counts attends to it

// Tokens [begin, begin + count) and which of them count.
struct CountedTokens {
  std::vector<int64_t> tokens;
  std::vector<uint8_t> counts;  // empty: all do

  int64_t target(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return counts.empty() || counts[at] != 0 ? tokens[at] : kNoTarget;
  }
};

CountedTokens read_counted(const TokenStream& stream, bool has_mask, int64_t begin, int64_t count,
                           std::vector<size_t>& touched) {
  CountedTokens out;
  out.tokens.resize(static_cast<size_t>(count));
  stream.read(begin, count, out.tokens.data(), touched);
  if (!has_mask) return out;
  out.counts.resize(static_cast<size_t>(count));
  stream.read_mask(begin, count, out.tokens.data(), out.counts.data(), touched);
  return out;
}

}  // namespace

TokenSamples::TokenSamples(const TokenStream& stream, const SampleForm& form, int64_t begin,
                           int64_t end)
    : stream_(&stream), form_(form), begin_(begin), end_(end) {
  SMP_CHECK(form.pack != Packing::kPad);
  const int64_t tokens = std::max<int64_t>(end - begin, 0);
  // The last token of a sequence has its target behind it.
  count_ = form.sequences == 1 ? std::max<int64_t>(tokens - 1, 0) / form.length
                               : tokens / form.sample_tokens();
}

TokenSamples TokenSamples::of_documents(const TokenStream& stream, const SampleForm& form,
                                        int64_t first, int64_t last) {
  SampleForm windows = form;
  windows.pack = Packing::kConcatenate;
  TokenSamples samples(stream, windows, first, first);
  samples.form_ = form;
  samples.end_ = last;
  samples.count_ = last - first;
  return samples;
}

void TokenSamples::read(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
                        std::vector<size_t>& touched) const {
  SMP_CHECK(sample >= 0 && sample < count_);
  if (form_.pack == Packing::kConcatenate) {
    read_window(sample, k, count, out, touched);
  } else {
    read_pieces(row_of(sample, touched), k, out, touched);
  }
}

void TokenSamples::read_window(int64_t sample, int64_t k, int64_t count, const TokenBuffers& out,
                               std::vector<size_t>& touched) const {
  const int64_t length = form_.length;
  const bool is_pair = form_.sequences == 2;
  const int64_t first_target = is_pair ? length : 1;
  const CountedTokens window =
      read_counted(*stream_, form_.has_mask, begin_ + sample * form_.sample_tokens(),
                   is_pair ? 2 * length : length + 1, touched);
  if (out.targets != nullptr) {
    int64_t* to = out.targets + k * length;
    for (int64_t i = 0; i < length; ++i) to[i] = window.target(first_target + i);
  }
  if (out.document_starts != nullptr) std::fill_n(out.document_starts + k * length, length, 0);
  if (out.tokens == nullptr) return;
  std::copy_n(window.tokens.begin(), length, out.tokens + k * length);
  if (!is_pair) return;
  int64_t* decoder = out.tokens + (count + k) * length;
  decoder[0] = kDecoderStart;
  std::copy_n(window.tokens.begin() + length, length - 1, decoder + 1);
}

std::vector<DocumentPiece> TokenSamples::row_of(int64_t sample,
                                                std::vector<size_t>& touched) const {
  if (form_.pack == Packing::kPad) {
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
  const int64_t first = sample / kPackedTogether * kPackedTogether;
  const int64_t rows = std::min(kPackedTogether, count_ - first);
  const int64_t begin = begin_ + first * form_.length;
  return pack_best_fit(stream_->pieces(begin, begin + rows * form_.length, touched), rows,
                       form_.length)[static_cast<size_t>(sample - first)];
}

void TokenSamples::read_pieces(const std::vector<DocumentPiece>& row, int64_t k,
                               const TokenBuffers& out, std::vector<size_t>& touched) const {
  const int64_t length = form_.length;
  int64_t at = 0;
  const auto put_start = [&](int64_t start, int64_t count) {
    if (out.document_starts != nullptr)
      std::fill_n(out.document_starts + k * length + start, count, start);
  };
  for (const DocumentPiece& piece : row) {
    const CountedTokens read = read_counted(*stream_, form_.has_mask, piece.begin,
                                            piece.length + (piece.ends ? 0 : 1), touched);
    if (out.tokens != nullptr)
      std::copy_n(read.tokens.begin(), piece.length, out.tokens + k * length + at);
    if (out.targets != nullptr) {
      int64_t* to = out.targets + k * length + at;
      for (int64_t i = 0; i + 1 < piece.length; ++i) to[i] = read.target(i + 1);
      to[piece.length - 1] = piece.ends ? kNoTarget : read.target(piece.length);
    }
    put_start(at, piece.length);
    at += piece.length;
  }
  put_start(at, length - at);
  if (out.tokens != nullptr) std::fill_n(out.tokens + k * length + at, length - at, kPaddingToken);
  if (out.targets != nullptr) std::fill_n(out.targets + k * length + at, length - at, kNoTarget);
}

std::vector<DocumentPiece> TokenSamples::pieces(int64_t sample,
                                                std::vector<size_t>& touched) const {
  SMP_CHECK(sample >= 0 && sample < count_);
  if (form_.pack != Packing::kConcatenate) return row_of(sample, touched);
  const int64_t begin = begin_ + sample * form_.sample_tokens();
  if (stream_->documents()) return stream_->pieces(begin, begin + form_.sample_tokens(), touched);
  return {{.begin = begin, .length = form_.sample_tokens(), .document = -1, .offset = begin}};
}

}  // namespace smp
