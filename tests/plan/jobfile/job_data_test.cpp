#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "plan/job_texts.h"

namespace smp {
namespace {

using testing::kSmall;
using testing::rewritten;

// The message alone, without the line and the caret.
std::string error_with(const std::string& training) {
  const std::string text = error_of([&] { rewritten(kSmall + "training: {" + training + "}\n"); });
  const size_t begin = text.find(": ") + 2;
  return text.substr(begin, text.find('\n') - begin);
}

}  // namespace

TEST_CASE("sources of a mixture and sets to evaluate on are lists of maps") {
  const std::string lists =
      "training:\n  evaluation:\n    every_steps: 5\n    sets: [{name: code, path: val, format: "
      "npy}]\n  data:\n    sources: [{path: a, weight: 0.3}, {weight: 7e-1, path: \"b c\", format: "
      "nanogpt, name: bee}]\n";
  const std::string written = rewritten(kSmall + lists);
  CHECK(written.find("    sources: [{path: a, weight: 0.3}, {path: \"b c\", weight: 0.7, format: "
                     "nanogpt, name: bee}]\n") != std::string::npos);
  CHECK(written.find("    sets: [{name: code, path: val, format: npy}]\n") != std::string::npos);
  CHECK(rewritten(written) == written);
  const auto sources = [](const std::string& list) {
    return error_with("data: {sources: " + list + "}");
  };
  CHECK(sources("3") == "sources must be a list such as [{path: wiki, weight: 0.3}], not '3'");
  CHECK(sources("[a]") ==
        "sources item 1 must be a map such as {path: wiki, weight: 0.3}, not 'a'");
  CHECK(sources("[{path: a, weight: 1}, {path: b}]") == "sources item 2 needs weight");
  CHECK(sources("[{path: a, wheight: 1}]") ==
        "sources item 1 has the unknown key 'wheight'; its keys are path, weight, format, name");
  CHECK(sources("[{path: a, weight: 0}]")
            .starts_with("sources item 1 has a bad key: weight must be"));
  CHECK(sources("[{path: a, weight: 1, name: x}, {path: b, weight: 1, name: x}]") ==
        "sources has two items of the name 'x'");
  CHECK(error_with("evaluation: {every_steps: 1, sets: [{path: a}]}") == "sets item 1 needs name");
}

TEST_CASE("keys of the data that do not go together are refused") {
  CHECK(error_with("data: {path: a, sources: [{path: b, weight: 1}]}") ==
        "path and sources are both set: give one of them");
  CHECK(error_with("data: {format: npy, sources: [{path: b, weight: 1}]}") ==
        "format belongs to path: with sources, give each source its own format");
  CHECK(error_with("data: {path: python-stdlib, format: npy}") ==
        "path: python-stdlib is text, but format is npy");
  CHECK(error_with("data: {path: a, format: llmc, tokens: bytes}") ==
        "tokens: bytes needs files of text, but format llmc holds token ids: leave out one of the "
        "two keys");
  CHECK(error_with("data: {path: a, end_of_document: 256}") ==
        "end_of_document (256) must be a token of the model, 0 to 255");
  const std::string parts =
      "split needs three parts, for training (above 0), for evaluation and left out, as in [98, 1, "
      "1]";
  CHECK(error_with("data: {path: a, split: [98, 2]}") == parts);
  CHECK(error_with("data: {path: a, split: [0, 2, 98]}") == parts);
  CHECK(
      error_with("data: {path: a, split: [98, 0, 2]}, evaluation: {every_steps: 1}") ==
      "split leaves no data for evaluation: set its second part above 0, or give evaluation.sets");
  CHECK(error_with("data: {path: a, longer: truncate}") == "longer needs pack: pad");
  const std::string pair = error_of([] {
    rewritten(
        "model: {family: transformer, stack: encoder_decoder, position_embedding: relative, "
        "num_layers: 2, hidden_size: 32, num_heads: 2, ffn_hidden_size: 64, vocab_size: 256}\n"
        "training: {data: {path: a, pack: documents}}\n");
  });
  CHECK(pair.find("pack: documents needs stack: decoder; with an encoder_decoder write pack: "
                  "concatenate") != std::string::npos);
}

}  // namespace smp
