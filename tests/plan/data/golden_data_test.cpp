#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "files_and_errors.h"
#include "plan/data/corpus.h"
#include "smp/plan/text/json.h"

// Files that scripts/make-golden-data wrote by the formats' definitions, and that the programs' own
// loaders were seen to read alike (its --live).
namespace smp {
namespace {

using corpus::Tokens;

const std::string kFolder = SMP_SOURCE_DIR "/tests/golden/data/";

std::vector<Tokens> documents_of(const data::TokenStream& stream) {
  std::vector<Tokens> documents;
  data::ReadScratch scratch;
  for (int64_t i = 0; i < stream.documents().value(); ++i) {
    const int64_t begin = stream.document_begin(i);
    Tokens document(static_cast<size_t>(stream.document_begin(i + 1) - begin));
    stream.read(begin, static_cast<int64_t>(document.size()), document.data(), scratch);
    documents.push_back(std::move(document));
  }
  return documents;
}

}  // namespace

TEST_CASE("each format's golden files hold the same tokens and documents") {
  const text::Json corpora = text::Json::parse(text_of(kFolder + "documents.json"));
  int files_read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    if (!name.ends_with(".bin") && !name.ends_with(".npy")) continue;
    CAPTURE(name);
    ++files_read;
    const bool is_nanogpt = name.ends_with("-nanogpt.bin");
    if (!is_nanogpt) CHECK(data::format_of_file(path).has_value());
    data::OpenFiles files;
    const data::TokenStream stream(
        {.path = path,
         .format = is_nanogpt ? std::optional(DataFormat::kNanogpt) : std::nullopt,
         .suffixes = {},
         .end_of_document = {},
         .loss_mask = {},
         .vocab_size = 128256},
        files);
    const auto expected =
        corpora.at(name.substr(0, name.find('-'))).get<std::vector<std::vector<int64_t>>>();
    Tokens tokens(static_cast<size_t>(stream.tokens()));
    data::ReadScratch scratch;
    stream.read(0, stream.tokens(), tokens.data(), scratch);
    CHECK(tokens == corpus::joined(expected));
    if (stream.format() == DataFormat::kMegatron) CHECK(documents_of(stream) == expected);
  }
  CHECK(files_read == 31);
}

}  // namespace smp
