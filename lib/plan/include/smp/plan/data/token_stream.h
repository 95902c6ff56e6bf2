#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/data/open_files.h"
#include "smp/plan/data/stream_request.h"
#include "smp/plan/data/token_file.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::data {

// Tokens of one document that follow each other in the stream. `document` is its number from 0, or
// -1 if only the ends of documents are known.
struct DocumentPiece {
  int64_t begin = 0;   // token of the stream
  int64_t length = 0;  // tokens
  int64_t document = -1;
  int64_t offset = 0;  // of its first token in the document; in the stream where document is -1
  bool ends = false;   // the document ends with it
  bool operator==(const DocumentPiece&) const = default;
};

// Buffers that consecutive reads reuse, and the numbers in OpenFiles of the files that they read,
// some more than once. For one thread.
struct ReadScratch {
  std::vector<size_t> touched;
  std::vector<char> bytes;
  std::vector<int64_t> tokens;
  std::vector<uint8_t> counts;
};

// The files of one data set, in the order of their paths, as one stream of tokens. A token 0 lies
// between two files of text. No content is kept in memory. Immutable; safe from any thread.
class TokenStream {
 public:
  // Adds its files to `files`, which must outlive it. Throws ConfigError, with key and path, if a
  // file is missing, torn, unfit for the model, or holds no token.
  TokenStream(StreamRequest request, OpenFiles& files);

  const std::string& folder() const { return folder_; }  // that the files lie below
  DataFormat format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  size_t shards() const { return shards_.size(); }
  // Number of documents; nothing if documents have no numbers because only their ends are known, or
  // not even these.
  std::optional<int64_t> documents() const;
  // The manifests of its files that have one, in the order of the files.
  std::vector<TokenManifest> manifests() const;
  bool needs_ends() const { return !documents(); }  // to know documents: an end_of_document
  bool knows_documents() const { return documents() || end_of_document_; }
  std::string unit() const { return format_ == DataFormat::kText ? "bytes" : "tokens"; }

  // Tokens [begin, begin + count). Throws std::runtime_error, with file, document and offset, for a
  // token outside the model's vocabulary, and as OpenFiles does. Uses scratch.bytes.
  void read(int64_t begin, int64_t count, int64_t* out, ReadScratch& scratch) const;

  // 1 for a token that counts in the loss, else 0; only for a stream with a mask. `tokens` is what
  // read() gave for the same range. Uses scratch.bytes.
  void read_mask(int64_t begin, int64_t count, const int64_t* tokens, uint8_t* out,
                 ReadScratch& scratch) const;

  // The documents' pieces in tokens [begin, end), in order; only where documents are known.
  std::vector<DocumentPiece> pieces(int64_t begin, int64_t end, ReadScratch& scratch) const;

  // First token of document `document`, for a stream whose documents have numbers. For the number
  // behind the last document it is tokens().
  int64_t document_begin(int64_t document) const;

  // Where a token lies, in words: "corpus.bin, document 3, token 17 of it".
  std::string place_of(int64_t token) const;

  // Tokens of the longest document, for a stream whose documents have numbers. Reads the whole
  // index if no manifest gives the length.
  int64_t longest_document() const;

 private:
  struct Shard {
    TokenFile file;
    int64_t begin = 0;           // first token in the stream
    int64_t first_document = 0;  // of those that have numbers
  };

  size_t shard_at(int64_t token) const;
  size_t shard_of_document(int64_t document) const;
  int64_t document_at(const Shard& shard, int64_t token) const;
  void check_manifest(const TokenManifest& manifest, const StreamRequest& request) const;
  void ask_for_mask(const TokenFile& file) const;
  [[noreturn]] void refuse_token(int64_t begin, const int64_t* tokens, int64_t count) const;
  [[noreturn]] void refuse_mask(const TokenMask& mask, const char* bytes, int64_t offset,
                                int64_t token) const;
  void add_numbered(int64_t begin, int64_t end, std::vector<DocumentPiece>& out,
                    ReadScratch& scratch) const;
  void add_ended(int64_t begin, int64_t end, std::vector<DocumentPiece>& out,
                 ReadScratch& scratch) const;

  OpenFiles& files_;
  std::string key_, folder_;
  DataFormat format_ = DataFormat::kText;
  std::optional<int64_t> end_of_document_;
  int64_t vocab_size_ = 0;
  std::vector<Shard> shards_;
  int64_t tokens_ = 0;
};

}  // namespace smp::data
