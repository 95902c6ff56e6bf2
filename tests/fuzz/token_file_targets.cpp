#include "token_file_targets.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "fuzz/target.h"
#include "plan/data/corpus.h"
#include "scratch_folder.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/packing.h"
#include "smp/plan/data/token_stream.h"

namespace smp::fuzz {
namespace {

constexpr int64_t kFixedTokens = 32;
constexpr int64_t kMostRead = 4096;  // tokens, or documents

void require_data(bool holds, const char* what) {
  if (!holds) throw PropertyBroken{what};
}

// Pieces are the tokens from `begin` to `end` without a gap, and pack without a rest.
void check_pieces(const data::TokenStream& stream, int64_t begin, int64_t end) {
  data::ReadScratch scratch;
  const std::vector<data::DocumentPiece> pieces = stream.pieces(begin, end, scratch);
  int64_t at = begin;
  for (const data::DocumentPiece& piece : pieces) {
    require_data(piece.begin == at && piece.length > 0, "pieces with a gap");
    at += piece.length;
  }
  require_data(at == end, "pieces that end elsewhere");
  constexpr int64_t kRow = 7;
  const int64_t rows = (end - begin) / kRow;
  if (rows == 0) return;
  const data::PackedRows packed =
      data::pack_best_fit(stream.pieces(begin, begin + rows * kRow, scratch), rows, kRow);
  require_data(packed.size() == static_cast<size_t>(rows), "rows are missing");
}

data::StreamRequest request_for(const std::string& path) {
  data::StreamRequest request;
  request.path = path;
  request.vocab_size = 50000;
  return request;
}

// Opens and reads all that a job would. What is torn may be seen when it is read.
void read_stream(const data::StreamRequest& request) {
  data::OpenFiles files;
  const data::TokenStream stream(request, files);
  const int64_t tokens = std::min(stream.tokens(), kMostRead), end = stream.tokens();
  std::vector<int64_t> values(static_cast<size_t>(tokens));
  data::ReadScratch scratch;
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const std::runtime_error&) {
    }
  };
  const auto read = [&](int64_t begin) {
    stream.read(begin, tokens, values.data(), scratch);
    for (const int64_t value : values)
      require_data(value >= 0 && value < 50000, "a token without a row");
  };
  attempt([&] { read(0); });
  attempt([&] { read(end - tokens); });
  attempt([&] { require_data(!stream.place_of(end - 1).empty(), "a token without a place"); });
  if (stream.knows_documents()) {
    attempt([&] { check_pieces(stream, 0, tokens); });
    attempt([&] { check_pieces(stream, end - tokens, end); });
    attempt([&] { check_pieces(stream, end / 2, end / 2 + (tokens + 1) / 2); });
  }
  if (!stream.documents()) return;
  attempt([&] { require_data(stream.longest_document() >= 0, "a document below 0"); });
  for (int64_t document = 0; document < std::min(*stream.documents(), kMostRead); ++document) {
    attempt([&] {
      const int64_t begin = stream.document_begin(document);
      require_data(begin >= 0 && begin <= end, "a document outside of its file");
    });
  }
}

void read_mask_beside(const std::string& suffix, const std::string& text) {
  const ScratchFolder folder;
  corpus::Tokens tokens;
  for (int64_t i = 0; i < kFixedTokens; ++i) tokens.push_back(i);
  corpus::write_bytes(folder / "a.npy", corpus::npy("<u2", "(32,)", corpus::raw<uint16_t>(tokens)));
  corpus::write_bytes(folder / ("a" + suffix), text);
  data::OpenFiles files;
  data::StreamRequest request = request_for(folder / "a.npy");
  request.loss_mask = true;
  const data::TokenStream stream(request, files);
  std::vector<uint8_t> counts(kFixedTokens, 2);
  data::ReadScratch scratch;
  try {
    stream.read_mask(0, kFixedTokens, tokens.data(), counts.data(), scratch);
  } catch (const std::runtime_error&) {
    return;
  }
  for (const uint8_t count : counts) require_data(count <= 1, "a token counts in part");
}

// A 3 ends a document.
void read_one_file(const std::string& name, const std::string& text, DataFormat format) {
  const ScratchFolder folder;
  corpus::write_bytes(folder / name, text);
  data::StreamRequest request = request_for(folder / name);
  request.format = format;
  request.end_of_document = 3;
  read_stream(request);
}

}  // namespace

void read_megatron_data(const std::string& text) {
  constexpr size_t kTokenBytes = 64;
  const size_t index = text.size() - std::min(text.size(), kTokenBytes);
  const ScratchFolder folder;
  corpus::write_bytes(folder / "a.idx", text.substr(0, index));
  corpus::write_bytes(folder / "a.bin", text.substr(index));
  read_stream(request_for(folder / "a"));
}

void read_llmc_data(const std::string& text) { read_one_file("a.bin", text, DataFormat::kLlmc); }
void read_npy_data(const std::string& text) { read_one_file("a.npy", text, DataFormat::kNpy); }
void read_nanogpt_data(const std::string& text) {
  read_one_file("a.bin", text, DataFormat::kNanogpt);
}

void read_data_manifest(const std::string& text) {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", corpus::counted_documents(5, 12));
  corpus::write_bytes(folder / "a.smp.json", text);
  read_stream(request_for(folder / "a"));
}

void read_data_mask(const std::string& text) { read_mask_beside(".mask.bin", text); }
void read_data_labels(const std::string& text) { read_mask_beside(".labels.npy", text); }

}  // namespace smp::fuzz
