#include "smp/plan/data/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "data_paths.h"
#include "megatron_index.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/number_text.h"
#include "token_types.h"

namespace smp::data {
namespace {

constexpr int64_t kDocumentsAtOnce = 512;  // of an index, or of a manifest's longest
constexpr int64_t kTokensAtOnce = 16384;   // that are looked at for ends of documents
constexpr int64_t kFileText = 0;           // the token between two files of text

}  // namespace

TokenStream::TokenStream(StreamRequest request, OpenFiles& files)
    : files_(files), key_(request.key), vocab_size_(request.vocab_size) {
  const FoundData found = find_data(request);
  folder_ = found.folder;
  format_ = found.format;
  const bool has_mask = request.loss_mask.value_or(false);
  if (format_ == DataFormat::kText && has_mask) {
    throw ConfigError(
        fmt::format("training.data.loss_mask: {} is text, but only files of tokens have masks: "
                    "leave the key out",
                    found.folder));
  }
  const bool is_numbered = format_ == DataFormat::kText || format_ == DataFormat::kMegatron;
  if (!is_numbered) end_of_document_ = request.end_of_document;
  int64_t documents = 0;
  for (const std::string& path : found.files) {
    Shard shard{.file = open_token_file(format_, path, key_, files), .begin = tokens_};
    if (has_mask) shard.file.mask = open_token_mask(shard.file, key_, files);
    if (shard.file.manifest) check_manifest(*shard.file.manifest, request);
    if (!request.loss_mask && format_ != DataFormat::kText) ask_for_mask(shard.file);
    shard.first_document = documents;
    documents += shard.file.index ? shard.file.index->documents : 1;
    tokens_ += shard.file.tokens;
    shards_.push_back(std::move(shard));
    if (format_ == DataFormat::kText && shards_.size() < found.files.size()) ++tokens_;
  }
  if (tokens_ == 0) throw ConfigError(fmt::format("{}: {} holds no tokens", key_, found.folder));
}

void TokenStream::check_manifest(const TokenManifest& manifest,
                                 const StreamRequest& request) const {
  if (manifest.vocab_size <= request.vocab_size) return;
  throw ConfigError(
      fmt::format("model.vocab_size: {} is smaller than the vocabulary of the tokenizer {}, {} "
                  "({}): write at least that size",
                  request.vocab_size, manifest.tokenizer, manifest.vocab_size, manifest.path));
}

void TokenStream::ask_for_mask(const TokenFile& file) const {
  const std::string& tokens = files_.path(file.file);
  const std::vector<std::string> masks = masks_beside(tokens);
  const bool is_told = file.manifest && file.manifest->has_mask;
  if (masks.empty() && !is_told) return;
  throw ConfigError(
      fmt::format("training.data.loss_mask: {} {} {}, but the job does not set the key: write "
                  "loss_mask: true to use the mask, or loss_mask: false to count all tokens",
                  masks.empty() ? file.manifest->path : masks.front(),
                  masks.empty() ? "records a mask for" : "is a mask for", tokens));
}

std::vector<TokenManifest> TokenStream::manifests() const {
  std::vector<TokenManifest> found;
  for (const Shard& shard : shards_) {
    if (shard.file.manifest) found.push_back(*shard.file.manifest);
  }
  return found;
}

std::optional<int64_t> TokenStream::documents() const {
  const Shard& last = shards_.back();
  if (last.file.index) return last.first_document + last.file.index->documents;
  if (format_ == DataFormat::kText) return static_cast<int64_t>(shards_.size());
  return std::nullopt;
}

size_t TokenStream::shard_at(int64_t token) const {
  const auto after =
      std::upper_bound(shards_.begin(), shards_.end(), token,
                       [](int64_t place, const Shard& shard) { return place < shard.begin; });
  return static_cast<size_t>(after - shards_.begin() - 1);
}

size_t TokenStream::shard_of_document(int64_t document) const {
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), document,
      [](int64_t number, const Shard& shard) { return number < shard.first_document; });
  return static_cast<size_t>(after - shards_.begin() - 1);
}

void TokenStream::read(int64_t begin, int64_t count, int64_t* out, ReadScratch& scratch) const {
  SMP_CHECK(begin >= 0 && count >= 0 && begin + count <= tokens_);
  std::vector<char>& bytes = scratch.bytes;
  int64_t* const first = out;
  const int64_t first_token = begin, all = count;
  for (size_t i = shard_at(begin); count > 0; ++i) {
    const Shard& shard = shards_[i];
    const int64_t offset = begin - shard.begin, size = bytes_of(shard.file.type);
    const int64_t here = std::clamp<int64_t>(shard.file.tokens - offset, 0, count);
    if (here > 0) {
      bytes.resize(static_cast<size_t>(here * size));
      files_.read(shard.file.file, shard.file.begin + offset * size, here * size, bytes.data());
      widen_tokens(shard.file.type, bytes.data(), here, out);
      scratch.touched.push_back(shard.file.file);
    }
    out += here;
    begin += here;
    count -= here;
    if (count > 0 && format_ == DataFormat::kText) {
      *out++ = kFileText;
      ++begin;
      --count;
    }
  }
  if (!all_within(first, all, vocab_size_)) refuse_token(first_token, first, all);
}

void TokenStream::refuse_token(int64_t begin, const int64_t* tokens, int64_t count) const {
  int64_t i = 0;
  while (i < count && tokens[i] >= 0 && tokens[i] < vocab_size_) ++i;
  throw std::runtime_error(
      fmt::format("{}: {} is {}, but the model has tokens 0 to {} (model.vocab_size {})", key_,
                  place_of(begin + i), tokens[i], vocab_size_ - 1, vocab_size_));
}

int64_t TokenStream::document_at(const Shard& shard, int64_t token) const {
  return document_of_token(*shard.file.index, token - shard.begin, shard.file.tokens, files_);
}

std::string TokenStream::place_of(int64_t token) const {
  const Shard& shard = shards_[shard_at(token)];
  const std::string& path = files_.path(shard.file.file);
  const int64_t offset = token - shard.begin;
  if (format_ == DataFormat::kText) return fmt::format("{}, byte {}", path, offset);
  if (!shard.file.index) return fmt::format("{}, token {}", path, offset);
  const int64_t document = document_at(shard, token);
  const int64_t first =
      document_begins(*shard.file.index, document, 1, shard.file.tokens, files_)[0];
  return fmt::format("{}, token {}: document {}, its token {}", path, offset, document,
                     offset - first);
}

void TokenStream::read_mask(int64_t begin, int64_t count, const int64_t* tokens, uint8_t* out,
                            ReadScratch& scratch) const {
  for (size_t i = shard_at(begin); count > 0; ++i) {
    const Shard& shard = shards_[i];
    const TokenMask& mask = shard.file.mask.value();
    const int64_t offset = begin - shard.begin, size = bytes_of(mask.type);
    const int64_t here = std::clamp<int64_t>(shard.file.tokens - offset, 0, count);
    if (here == 0) continue;
    scratch.bytes.resize(static_cast<size_t>(here * size));
    const char* bytes = scratch.bytes.data();
    files_.read(mask.file, mask.begin + offset * size, here * size, scratch.bytes.data());
    scratch.touched.push_back(mask.file);
    const int64_t fit = mask.is_labels ? counts_of_labels(mask.type, bytes, tokens, here, out)
                                       : counts_of_bits(bytes, here, out);
    if (fit < here) refuse_mask(mask, bytes + fit * size, offset + fit, tokens[fit]);
    out += here;
    tokens += here;
    begin += here;
    count -= here;
  }
}

void TokenStream::refuse_mask(const TokenMask& mask, const char* bytes, int64_t offset,
                              int64_t token) const {
  int64_t value = 0;
  widen_tokens(mask.type, bytes, 1, &value);
  throw std::runtime_error(fmt::format(
      "training.data.loss_mask: {} has {} at token {}, expected {}", files_.path(mask.file), value,
      offset, mask.is_labels ? fmt::format("the token {} or -100", token) : "0 or 1"));
}

int64_t TokenStream::document_begin(int64_t document) const {
  if (document >= documents().value()) return tokens_;
  const Shard& shard = shards_[shard_of_document(document)];
  if (!shard.file.index) return shard.begin;
  return shard.begin + document_begins(*shard.file.index, document - shard.first_document, 1,
                                       shard.file.tokens, files_)[0];
}

int64_t TokenStream::longest_document() const {
  int64_t longest = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    if (!shard.file.index) {
      const bool is_last = i + 1 == shards_.size();
      longest = std::max(longest, shard.file.tokens + (is_last ? 0 : 1));
    } else if (shard.file.manifest) {
      longest = std::max(longest, shard.file.manifest->longest_document);
    } else {
      const int64_t documents = shard.file.index->documents;
      for (int64_t first = 0; first < documents; first += kDocumentsAtOnce) {
        const int64_t count = std::min(kDocumentsAtOnce, documents - first);
        const std::vector<int64_t> begins =
            document_begins(*shard.file.index, first, count + 1, shard.file.tokens, files_);
        for (size_t k = 0; k + 1 < begins.size(); ++k)
          longest = std::max(longest, begins[k + 1] - begins[k]);
      }
    }
  }
  return longest;
}

std::vector<DocumentPiece> TokenStream::pieces(int64_t begin, int64_t end,
                                               ReadScratch& scratch) const {
  std::vector<DocumentPiece> out;
  if (documents()) {
    add_numbered(begin, end, out, scratch);
  } else {
    add_ended(begin, end, out, scratch);
  }
  return out;
}

void TokenStream::add_numbered(int64_t begin, int64_t end, std::vector<DocumentPiece>& out,
                               ReadScratch& scratch) const {
  const auto add = [&](int64_t first, int64_t last, int64_t document) {
    const int64_t from = std::max(first, begin), to = std::min(last, end);
    if (from < to)
      out.push_back({.begin = from,
                     .length = to - from,
                     .document = document,
                     .offset = from - first,
                     .ends = to == last});
  };
  for (size_t i = shard_at(begin); i < shards_.size() && shards_[i].begin < end; ++i) {
    const Shard& shard = shards_[i];
    if (!shard.file.index) {
      add(shard.begin, i + 1 < shards_.size() ? shards_[i + 1].begin : tokens_,
          shard.first_document);
      continue;
    }
    if (shard.file.tokens == 0) continue;
    scratch.touched.push_back(shard.file.index->file);
    const int64_t documents = shard.file.index->documents;
    bool is_over = false;
    // About as many as there are to come, so that most often one look is enough and not too long.
    const auto wanted =
        static_cast<int64_t>(text::Int128{end - begin} * documents / shard.file.tokens);
    const int64_t at_once = std::clamp<int64_t>(wanted + wanted / 4 + 16, 16, kDocumentsAtOnce);
    for (int64_t first = document_at(shard, std::max(begin, shard.begin));
         first < documents && !is_over; first += at_once) {
      const int64_t count = std::min(at_once, documents - first);
      const std::vector<int64_t> begins =
          document_begins(*shard.file.index, first, count + 1, shard.file.tokens, files_);
      for (int64_t k = 0; k < count && !is_over; ++k) {
        const int64_t from = shard.begin + begins[static_cast<size_t>(k)];
        add(from, shard.begin + begins[static_cast<size_t>(k) + 1],
            shard.first_document + first + k);
        is_over = from >= end;
      }
    }
  }
}

void TokenStream::add_ended(int64_t begin, int64_t end, std::vector<DocumentPiece>& out,
                            ReadScratch& scratch) const {
  const int64_t last_token = end_of_document_.value();
  std::vector<int64_t> ends;
  int64_t first = begin;
  const auto add = [&](int64_t behind) {
    out.push_back(
        {.begin = first, .length = behind - first, .document = -1, .offset = first, .ends = true});
    first = behind;
  };
  for (size_t i = shard_at(begin); i < shards_.size() && shards_[i].begin < end; ++i) {
    const Shard& shard = shards_[i];
    const int64_t size = bytes_of(shard.file.type);
    const int64_t until = std::min(end - shard.begin, shard.file.tokens);
    for (int64_t at = std::max<int64_t>(begin - shard.begin, 0); at < until; at += kTokensAtOnce) {
      const int64_t count = std::min(kTokensAtOnce, until - at);
      scratch.bytes.resize(static_cast<size_t>(count * size));
      files_.read(shard.file.file, shard.file.begin + at * size, count * size,
                  scratch.bytes.data());
      scratch.touched.push_back(shard.file.file);
      ends.clear();
      find_token(shard.file.type, scratch.bytes.data(), count, last_token, ends);
      for (const int64_t place : ends) add(shard.begin + at + place + 1);
    }
  }
  if (first < end)
    out.push_back(
        {.begin = first, .length = end - first, .document = -1, .offset = first, .ends = false});
}

}  // namespace smp::data
