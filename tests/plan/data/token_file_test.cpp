#include "smp/plan/data/token_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "files_and_errors.h"
#include "plan/data/corpus.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"

namespace smp {
namespace {

using corpus::Tokens;
using corpus::write_bytes;

const std::vector<Tokens> kDocuments = {{5, 6, 7}, {}, {8}, {9, 10, 11, 12}};
const Tokens kTokens = corpus::joined(kDocuments);

data::TokenStream stream_of(data::OpenFiles& files, const std::string& path,
                            std::optional<DataFormat> format = {}, int64_t vocabulary = 60000) {
  return data::TokenStream({.path = path,
                            .format = format,
                            .suffixes = {},
                            .end_of_document = {},
                            .loss_mask = {},
                            .vocab_size = vocabulary},
                           files);
}

Tokens tokens_at(const std::string& path, std::optional<DataFormat> format = {}) {
  data::OpenFiles files;
  const data::TokenStream stream = stream_of(files, path, format);
  Tokens tokens(static_cast<size_t>(stream.tokens()));
  data::ReadScratch scratch;
  stream.read(0, stream.tokens(), tokens.data(), scratch);
  return tokens;
}

std::string refusal(const std::string& path, std::optional<DataFormat> format = {}) {
  return error_of([&] { tokens_at(path, format); });
}

void replace_bytes(const std::string& path, size_t at, const std::string& bytes) {
  std::string text = text_of(path);
  text.replace(at, bytes.size(), bytes);
  write_bytes(path, text);
}

}  // namespace

TEST_CASE("each format gives the same tokens") {
  const ScratchFolder folder;
  corpus::write_megatron<uint8_t>(folder / "m1", kDocuments, 1);
  corpus::write_megatron<int8_t>(folder / "m2", kDocuments, 2);
  corpus::write_megatron<int16_t>(folder / "m3", kDocuments, 3);
  corpus::write_megatron<int32_t>(folder / "m4", kDocuments, 4);
  corpus::write_megatron<int64_t>(folder / "m5", kDocuments, 5);
  corpus::write_megatron16(folder / "m8", kDocuments);
  for (const char* name : {"m1", "m2", "m3", "m4", "m5", "m8"}) {
    for (const char* suffix : {"", ".bin", ".idx"})
      CHECK(tokens_at(folder / name + suffix) == kTokens);
    CHECK(tokens_at(folder / name, DataFormat::kMegatron) == kTokens);
  }
  corpus::write_megatron16(folder / "wiki_text_document", kDocuments);
  CHECK(tokens_at(folder / "wiki") == kTokens);
  write_bytes(folder / "nano.bin", corpus::raw<uint16_t>(kTokens));
  CHECK(tokens_at(folder / "nano.bin", DataFormat::kNanogpt) == kTokens);
  write_bytes(folder / "c1.bin", corpus::llmc(kTokens, false));
  write_bytes(folder / "c3.bin", corpus::llmc(kTokens, true));
  CHECK(tokens_at(folder / "c1.bin") == kTokens);
  CHECK(tokens_at(folder / "c3.bin") == kTokens);
  const std::pair<const char*, std::string> arrays[] = {
      {"|u1", corpus::raw<uint8_t>(kTokens)},  {"|i1", corpus::raw<int8_t>(kTokens)},
      {"<u2", corpus::raw<uint16_t>(kTokens)}, {"<i2", corpus::raw<int16_t>(kTokens)},
      {"<u4", corpus::raw<uint32_t>(kTokens)}, {"<i4", corpus::raw<int32_t>(kTokens)},
      {"<u8", corpus::raw<uint64_t>(kTokens)}, {"<i8", corpus::raw<int64_t>(kTokens)}};
  for (const auto& [descr, content] : arrays) {
    write_bytes(folder / "a.npy", corpus::npy(descr, "(8,)", content));
    CHECK(tokens_at(folder / "a.npy") == kTokens);
    CHECK(tokens_at(folder / "a") == kTokens);
  }
}

TEST_CASE("shards are one stream in the order of their paths, however many there are") {
  const ScratchFolder folder;
  Tokens all;
  for (int i = 0; i < 150; ++i) {  // more than are open at once
    const Tokens part = {i, i + 1000};
    write_bytes(folder / fmt::format("s{:03}.bin", i), corpus::llmc(part, i % 2 == 1));
    all.insert(all.end(), part.begin(), part.end());
  }
  CHECK(tokens_at(folder.path()) == all);
  CHECK(tokens_at(folder / "s*.bin") == all);
  CHECK(tokens_at(folder / "s*.bin", DataFormat::kLlmc) == all);
}

TEST_CASE("documents are found by the index, over shards, empty ones too") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", kDocuments);
  corpus::write_megatron16(folder / "b", {{1, 2}, {}, {}, {3}});
  data::OpenFiles files;
  const data::TokenStream stream = stream_of(files, folder.path());
  CHECK(stream.documents() == 8);
  const Tokens begins = {0, 3, 3, 4, 8, 10, 10, 10, 11};
  for (int64_t i = 0; i <= 8; ++i)
    CHECK(stream.document_begin(i) == begins[static_cast<size_t>(i)]);
  data::ReadScratch scratch;
  const auto pieces = stream.pieces(1, 10, scratch);
  CHECK(pieces ==
        std::vector<data::DocumentPiece>{
            {1, 2, 0, 1, true}, {3, 1, 2, 0, true}, {4, 4, 3, 0, true}, {8, 2, 4, 0, true}});
  CHECK(stream.pieces(5, 7, scratch) == std::vector<data::DocumentPiece>{{5, 2, 3, 1, false}});
  CHECK(stream.place_of(10) == (folder / "b.bin") + ", token 2: document 3, its token 0");
  CHECK(stream.longest_document() == 4);
}

TEST_CASE("a document of several sequences is one") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", kDocuments);
  // Documents [0, 2) and [2, 4) of the four sequences.
  std::string index = text_of(folder / "a.idx");
  index.resize(34 + 4 * 12);
  index.replace(26, 8, corpus::raw<uint64_t>({3}));
  write_bytes(folder / "a.idx", index + corpus::raw<int64_t>({0, 2, 4}));
  data::OpenFiles files;
  const data::TokenStream stream = stream_of(files, folder / "a");
  CHECK(stream.documents() == 2);
  CHECK(stream.document_begin(1) == 3);
  data::ReadScratch scratch;
  CHECK(stream.pieces(0, 8, scratch).size() == 2);
}

TEST_CASE("a file that holds no tokens, or is damaged, is refused with its path and numbers") {
  const ScratchFolder folder;
  const auto at = [&](const std::string& name, const std::string& words) {
    return "training.data.path: " + (folder / name) + words;
  };
  write_bytes(folder / "x.bin", "1234567890");
  CHECK(
      refusal(folder / "x.bin") ==
      at("x.bin",
         fmt::format(" has neither an index ({}.idx) nor llm.c's header, so its format is unknown: "
                     "write format: nanogpt if the file is 16 bits a token without a header",
                     folder / "x")));
  write_bytes(folder / "odd.bin", "123");
  CHECK(refusal(folder / "odd.bin", DataFormat::kNanogpt) ==
        at("odd.bin", " has 3 bytes, an odd number, but nanoGPT's tokens have 2 bytes each"));
  write_bytes(folder / "empty.bin", "");
  CHECK(refusal(folder / "empty.bin", DataFormat::kNanogpt) == at("empty.bin", " holds no tokens"));
  CHECK(refusal(folder / "x.bin", DataFormat::kLlmc) ==
        at("x.bin", " has 10 bytes, fewer than the 1024 bytes of llm.c's header"));
  write_bytes(folder / "c.bin", corpus::llmc(kTokens, false));
  const auto with_number = [&](int64_t number, int64_t value) {
    write_bytes(folder / "c.bin", corpus::llmc(kTokens, false));
    replace_bytes(folder / "c.bin", static_cast<size_t>(4 * number), corpus::raw<int32_t>({value}));
    return refusal(folder / "c.bin", DataFormat::kLlmc);
  };
  CHECK(with_number(0, 20240522) ==
        at("c.bin",
           " holds llm.c's multiple-choice questions (magic 20240522), not tokens to train on"));
  CHECK(
      with_number(0, 3) ==
      at("c.bin",
         " is not an llm.c file of tokens: its first number is 3, expected 20240520 or 20240801"));
  CHECK(with_number(1, 2) ==
        at("c.bin", " has llm.c's version 2; with magic 20240520, version 1 is expected"));
  CHECK(with_number(2, 9) == at("c.bin",
                                " has 9 tokens by its header, 1042 bytes in all, but 1040 bytes: "
                                "the file is damaged, or of another version"));
  CHECK(refusal(folder / "nothing*") ==
        "training.data.path: no file matches " + (folder / "nothing*"));
  CHECK(refusal(folder / "none") == at("none", " does not exist"));
}

TEST_CASE("a folder of several formats, or of training and validation files, is refused") {
  const ScratchFolder folder;
  write_bytes(folder / "fineweb_train_1.bin", corpus::llmc(kTokens, false));
  write_bytes(folder / "fineweb_val_0.bin", corpus::llmc(kTokens, false));
  CHECK(refusal(folder.path()) ==
        "training.data.path: " + folder.path() +
            " holds fineweb_train_1.bin and fineweb_val_0.bin, which would be read as one stream: "
            "give the files to train on, as in " +
            folder.path() + "/*train*, and the others to training.evaluation.sets");
  CHECK(tokens_at(folder / "*train*") == kTokens);
  std::filesystem::remove(folder / "fineweb_val_0.bin");
  write_bytes(folder / "readme.txt", "text");
  CHECK(refusal(folder.path()) ==
        "training.data.path: " + folder.path() + " holds files of several formats, " +
            (folder / "readme.txt") + " (text) and " + (folder / "fineweb_train_1.bin") +
            " (llmc): choose one with format, or give a glob of the files");
  CHECK(tokens_at(folder.path(), DataFormat::kLlmc) == kTokens);
  CHECK(refusal(folder.path(), DataFormat::kNpy) ==
        "training.data.path: " + folder.path() + " holds no file of format npy");
}

TEST_CASE("a NumPy file that holds no list of whole numbers is refused") {
  const ScratchFolder folder;
  const std::string path = folder / "a.npy", key = "training.data.path: " + path;
  const auto of = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return refusal(path);
  };
  CHECK(of("12") == key + " is not a NumPy file: expected \\x93NUMPY at its begin");
  CHECK(of(std::string("\x93NUMPY\x04\0\0\0\0\0", 12)) ==
        key + " has NumPy's format version 4, expected 1 to 3");
  CHECK(of(corpus::npy("<f4", "(2,)", "12345678")) ==
        key +
            " holds elements of type '<f4', expected little-endian whole numbers: save the array "
            "as array.astype('<i4')");
  CHECK(of(corpus::npy(">u2", "(2,)", "1234")).find("of type '>u2'") != std::string::npos);
  CHECK(of(corpus::npy("<u2", "(1, 2)", "1234")) ==
        key + " has the shape (1, 2), expected one dimension: save the array as array.reshape(-1)");
  CHECK(of(corpus::npy("<u2", "(3,)", "1234")) ==
        key +
            " has 3 elements of uint16 by its header, but 4 bytes behind the header: the file is "
            "damaged");
  CHECK(of(corpus::npy("<u2", "(2,)", "1234").substr(0, 30)) ==
        key +
            " has 30 bytes and a header of 118 bytes: the file is damaged, or is not an array of "
            "whole numbers");
  CHECK(of(std::string("\x93NUMPY\x01\0\x04\0{  }", 14)) ==
        key + " has a NumPy header without descr, fortran_order and shape");
}

TEST_CASE("an index that is damaged, of another kind or of another corpus is refused") {
  const ScratchFolder folder;
  const std::string bin = folder / "a.bin", idx = folder / "a.idx";
  const std::string key = "training.data.path: ";
  const auto with = [&](size_t place, const std::string& bytes) {
    corpus::write_megatron16(folder / "a", kDocuments);
    replace_bytes(idx, place, bytes);
    return refusal(folder / "a");
  };
  CHECK(with(0, "x") == key + idx + " is not a Megatron index: expected MMIDIDX at its begin");
  CHECK(with(9, corpus::raw<uint64_t>({2})) == key + idx + " has version 2, expected version 1");
  CHECK(with(17, "\x06") ==
        key + idx + " holds float64 (type code 6), but tokens must be whole numbers");
  CHECK(with(17, "\x07") ==
        key + idx + " holds float32 (type code 7), but tokens must be whole numbers");
  CHECK(with(17, "\x09") == key + idx + " has the type code 9, expected one of Megatron's, 1 to 8");
  CHECK(with(26, corpus::raw<uint64_t>({1})) == key + idx +
                                                    " has no documents: its builder did not mark "
                                                    "where a document ends; build the index again");
  CHECK(with(18, corpus::raw<uint64_t>({-1})) ==
        key + idx +
            " has 18446744073709551615 sequences and 4 documents in its header: the index is "
            "damaged");
  CHECK(with(18, corpus::raw<uint64_t>({5})) ==
        key + idx +
            " has 5 sequences and 4 documents, which need 134 bytes, but has 122 bytes: the index "
            "is damaged");
  // Sequence 0 of 4 tokens would end in the next one.
  CHECK(with(34, corpus::raw<int32_t>({4})) ==
        key + idx + " does not match " + bin +
            ": sequence 0 of 4 tokens of 2 bytes begins at byte 0 and ends at 8, expected 6: one "
            "of the two files is damaged or belongs to another corpus");
  CHECK(with(34 + 48, corpus::raw<int64_t>({1})) ==
        key + idx + " has documents from sequence 1 to 4, but 4 sequences: the index is damaged");
  corpus::write_megatron16(folder / "a", kDocuments);
  write_bytes(idx, text_of(idx) + std::string(4, '\0'));
  CHECK(refusal(folder / "a") ==
        key + idx +
            " has modes of its 4 sequences: the corpus is multimodal, expected tokens of text");
  corpus::write_megatron16(folder / "a", kDocuments);
  write_bytes(bin, text_of(bin) + "x");
  CHECK(refusal(folder / "a") ==
        key + bin +
            " has 17 bytes, which is not a whole number of tokens of uint16, 2 bytes each (by " +
            idx + ")");
  write_bytes(bin, corpus::raw<uint16_t>({1, 2, 3}));
  CHECK(refusal(folder / "a").find("begins at byte 8 and ends at 16, expected 6") !=
        std::string::npos);
  std::filesystem::remove(idx);
  CHECK(refusal(bin, DataFormat::kMegatron) ==
        key + "cannot read " + idx + ": No such file or directory");
}

TEST_CASE("what only a document's own entry tells is refused where it is read") {
  const ScratchFolder folder;
  const auto documents = corpus::counted_documents(400, 9);
  corpus::write_megatron16(folder / "a", documents);
  const size_t pointers = 34 + 4 * 400, ends = pointers + 8 * 400;
  const auto pieces_with = [&](size_t place, int64_t value) {
    corpus::write_megatron16(folder / "a", documents);
    replace_bytes(folder / "a.idx", place, corpus::raw<int64_t>({value}));
    return error_of([&] {
      data::OpenFiles files;
      const data::TokenStream stream = stream_of(files, folder / "a");
      data::ReadScratch scratch;
      stream.pieces(0, stream.tokens(), scratch);
    });
  };
  const auto says = [](const std::string& text, const std::vector<std::string>& parts) {
    size_t at = 0;
    for (const std::string& part : parts) {
      at = text.find(part, at);
      if (at == std::string::npos) return false;
      at += part.size();
    }
    return true;
  };
  CHECK(says(pieces_with(pointers + 8 * 3, 1),
             {"a.idx: sequence 3 begins at byte 1, but the corpus has ", " tokens of 2 ",
              "bytes: the index is damaged, or belongs to another corpus"}));
  CHECK(says(pieces_with(pointers + 8 * 3, 2000),
             {"begins at token ", ", before the previous document, at", ": the index is damaged"}));
  CHECK(says(pieces_with(ends + 8 * 3, 500),
             {"a.idx: document 3 begins at sequence 500, after sequence ", " and of 400 ",
              "sequences: the index is damaged"}));
}

TEST_CASE("the manifest must be of the same corpus, and its vocabulary fit the model's") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", kDocuments);
  const std::string path = folder / "a.smp.json";
  const auto manifest = [](int64_t tokens, int64_t vocabulary, const char* mask) {
    return fmt::format(
        R"({{"format": "smp-data", "version": 1, "tokenizer": {{"name": "gpt2", "sha256": "0"}},
            "vocab_size": {}, "end_of_document": null, "dtype": "uint16", "tokens": {},
            "documents": 4, "has_mask": {}, "sources": [], "longest_document": 4}})",
        vocabulary, tokens, mask);
  };
  write_bytes(path, manifest(8, 60000, "false"));
  CHECK(tokens_at(folder / "a") == kTokens);
  CHECK(tokens_at(path) == kTokens);
  write_bytes(path, manifest(8, 60001, "false"));
  CHECK(refusal(folder / "a") ==
        "model.vocab_size: 60000 is smaller than the vocabulary of the tokenizer gpt2, 60001 (" +
            path + "): write at least that size");
  write_bytes(path, manifest(9, 60000, "false"));
  CHECK(refusal(folder / "a") ==
        "training.data.path: " + path +
            " describes 9 tokens of uint16 in 4 documents, but the files beside it have 8 of "
            "uint16 in 4: the manifest belongs to another corpus");
  const auto bad = [&](const std::string& text, const std::string& words) {
    write_bytes(path, text);
    CHECK(refusal(folder / "a") == "training.data.path: " + path + ": " + words);
  };
  const std::string good = manifest(8, 60000, "false");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  bad("{", "the file is not valid JSON");
  std::filesystem::resize_file(path, (64 << 20) + 1);
  CHECK(refusal(folder / "a") ==
        "training.data.path: " + path +
            ": the file has 67108865 bytes, more than a manifest can have");
  std::filesystem::remove(path);
  bad(R"({"format": "other"})", "the file is not a manifest of smp-data");
  bad(changed("\"version\": 1", "\"version\": 2"),
      "the manifest has version 2, expected version 1");
  bad(changed("\"tokens\"", "\"token\""), "the key tokens is missing");
  bad(changed("\"tokens\": 8", "\"tokens\": -8"), "tokens must be a whole number of at least 0");
  bad(changed("\"smp-data\"", "3"), "format must be a text");
  bad(changed("uint16", "int64"), "dtype must be uint16 or int32");
  bad(changed("\"has_mask\": false", "\"has_mask\": 0"), "has_mask must be true or false");
}

TEST_CASE("a mask that lies there is asked about where the job says nothing of masks") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", kDocuments);
  write_bytes(folder / "n.npy", corpus::npy("<i4", "(3,)", corpus::raw<int32_t>({1, 2, 3})));
  const auto answer = [&](const std::string& path, std::optional<bool> loss_mask) {
    return error_of([&] {
      data::OpenFiles files;
      const data::TokenStream stream({.path = path,
                                      .format = {},
                                      .suffixes = {},
                                      .end_of_document = {},
                                      .loss_mask = loss_mask,
                                      .vocab_size = 60000},
                                     files);
    });
  };
  const std::string how =
      ", but the job does not set the key: write loss_mask: true to use the mask, or loss_mask: "
      "false to count all tokens";
  for (const char* mask : {".mask.bin", ".labels.bin", ".labels.npy"}) {
    for (const char* tokens : {"a.bin", "n.npy"}) {
      const std::string path = data::without_data_suffix(folder / tokens) + mask;
      CHECK(answer(folder / tokens, {}) == "no error");
      write_bytes(path, "x");
      CHECK(answer(folder / tokens, {}) ==
            "training.data.loss_mask: " + path + " is a mask for " + (folder / tokens) + how);
      CHECK(answer(folder / tokens, false) == "no error");
      CHECK(answer(folder / tokens, true).find(path) != std::string::npos);  // it is read
      std::filesystem::remove(path);
    }
  }
  // The mask of a manifest, moved away.
  write_bytes(folder / "a.smp.json",
              R"({"format": "smp-data", "version": 1, "tokenizer": {"name": "gpt2", "sha256": "0"},
                  "vocab_size": 9, "end_of_document": null, "dtype": "uint16", "tokens": 8,
                  "documents": 4, "has_mask": true, "sources": [], "longest_document": 4})");
  CHECK(answer(folder / "a", {}) == "training.data.loss_mask: " + (folder / "a.smp.json") +
                                        " records a mask for " + (folder / "a.bin") + how);
  CHECK(answer(folder / "a", false) == "no error");
  CHECK(answer(folder / "a", true).starts_with("training.data.loss_mask: no "));
}

TEST_CASE("a token outside the vocabulary is named with file, document and offset") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", kDocuments);
  write_bytes(folder / "n.npy", corpus::npy("<i4", "(3,)", corpus::raw<int32_t>({1, -2, 3})));
  const auto read = [](const std::string& path, int64_t vocabulary) {
    return error_of([&] {
      data::OpenFiles files;
      const data::TokenStream stream = stream_of(files, path, {}, vocabulary);
      Tokens tokens(3);
      data::ReadScratch scratch;
      stream.read(stream.tokens() - 3, 3, tokens.data(), scratch);
    });
  };
  CHECK(read(folder / "a", 11) == "training.data.path: " + (folder / "a.bin") +
                                      ", token 6: document 3, its token 2 is 11, but the model has "
                                      "tokens 0 to 10 (model.vocab_size 11)");
  CHECK(read(folder / "n.npy", 11) ==
        "training.data.path: " + (folder / "n.npy") +
            ", token 1 is -2, but the model has tokens 0 to 10 (model.vocab_size 11)");
}

TEST_CASE("a file that is written to while it is opened is named") {
  const ScratchFolder folder;
  write_bytes(folder / "a.bin", "1234");
  data::OpenFiles files;
  files.add(folder / "a.bin", "training.data.path");
  write_bytes(folder / "a.bin", "123456");
  CHECK(
      error_of([&] { files.identify("."); }) ==
      "training.data.path: " + (folder / "a.bin") +
          " is being written: its size changed from 4 to 6 bytes; wait until the file is complete");
}

}  // namespace smp
