#include "smp/tensorfiles/pretrained/tokenizer_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/pretrained/kept_files.h"

namespace smp {
namespace {

constexpr const char* kBpe = R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
"added_tokens": [{"id": 2, "content": "<|endoftext|>"}, {"id": 5, "content": "<|im_end|>"}]})";

JobSpec job_with(const std::string& folder, int64_t vocabulary) {
  JobSpec job;
  job.training.tokenizer = folder;
  job.model.vocab_size = vocabulary;
  return job;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("a tokenizer that the weights cannot travel with is refused at the start") {
  const ScratchFolder folder;
  const std::string path = folder.path();
  const auto error = [&](int64_t vocabulary) {
    return error_of([&] { pretrained::check_tokenizer(job_with(path, vocabulary), {}); });
  };
  CHECK_NOTHROW(pretrained::check_tokenizer(job_with("", 4), {}));
  CHECK(error_of([&] { pretrained::check_tokenizer(job_with(folder / "none", 4), {}); }) ==
        fmt::format("training.tokenizer: {} is not a folder", folder / "none"));
  CHECK(error(4) == fmt::format("training.tokenizer: {} has no tokenizer; expected tokenizer.json, "
                                "tokenizer.model, vocab.json or vocab.txt",
                                path));
  write(folder / "tokenizer.json", "{\"version\": \"1.0\"}");
  CHECK(error(4) == fmt::format("training.tokenizer: {}/tokenizer.json: not a Hugging Face "
                                "tokenizer: model.vocab is missing",
                                path));
  write(folder / "tokenizer.json", R"({"model": {"vocab": {"a": "b"}}})");
  CHECK(error(4) ==
        fmt::format("training.tokenizer: {}/tokenizer.json: \"b\" is not a token id", path));
  write(folder / "tokenizer.json", kBpe);
  CHECK(pretrained::tokenizer_vocabulary(path) == 6);
  CHECK(error(5) == fmt::format("training.tokenizer: {} has 6 tokens, but model.vocab_size is 5: "
                                "set model.vocab_size to at least the tokenizer's number",
                                path));
  CHECK_NOTHROW(pretrained::check_tokenizer(job_with(path, 6), {}));
  std::vector<data::TokenManifest> data(2);
  data[0].vocab_size = 6;
  data[1].path = "b.smp.json";
  data[1].tokenizer = "bpe";
  data[1].vocab_size = 5;
  CHECK_NOTHROW(pretrained::check_tokenizer(job_with(path, 6), std::span(data).first(1)));
  CHECK(error_of([&] { pretrained::check_tokenizer(job_with(path, 6), data); }) ==
        fmt::format("training.tokenizer: {} has 6 tokens, but the data were made with bpe, which "
                    "has 5 (b.smp.json): name the tokenizer that made the data",
                    path));
  write(folder / "tokenizer.json", R"({"model": {"vocab": [["<unk>", 0], ["a", -1.5]]}})");
  CHECK(pretrained::tokenizer_vocabulary(path) == 2);  // of Unigram
  write(folder / "merges.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  CHECK(error(6).starts_with(fmt::format("training.tokenizer: {}/merges.txt: ", path)));
}

TEST_CASE("a tokenizer of another kind has no vocabulary that is looked at") {
  const ScratchFolder folder;
  write(folder / "tokenizer.model", "sentencepiece");
  CHECK(!pretrained::tokenizer_vocabulary(folder.path()));
  CHECK_NOTHROW(pretrained::check_tokenizer(job_with(folder.path(), 1), {}));
}

TEST_CASE("the tokenizer is saved beside the weights, with its special tokens in config.json") {
  const ScratchFolder tokenizer, start, weights;
  write(tokenizer / "tokenizer.json", kBpe);
  write(
      tokenizer / "tokenizer_config.json",
      R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>", "pad_token": null})");
  write(tokenizer / "generation_config.json", "{\"of\": \"tokenizer\"}");
  write(weights / "config.json", "{\"model_type\": \"gpt2\"}");
  TrainingSpec training;
  CHECK(pretrained::keep_files(training, weights.path()).empty());  // nothing is asked for
  CHECK(text_of(weights / "config.json") == "{\"model_type\": \"gpt2\"}");

  training.tokenizer = tokenizer.path();
  CHECK(pretrained::keep_files(training, weights.path()).empty());
  CHECK(
      text::OrderedJson::parse(text_of(weights / "config.json")) ==
      text::OrderedJson::parse(R"({"model_type": "gpt2", "bos_token_id": 2, "eos_token_id": 5})"));
  CHECK(text_of(weights / "tokenizer.json") == kBpe);
  CHECK(!std::filesystem::exists(weights / "generation_config.json"));

  SUBCASE("with weights that another folder gave: its settings, this tokenizer") {
    write(start / "config.json", R"({"eos_token_id": [5, 2], "sep_token_id": 1})");
    write(start / "tokenizer.json", "another");
    write(start / "generation_config.json", "{\"of\": \"start\"}");
    training.init_from = start.path();
    CHECK(pretrained::keep_files(training, weights.path()).empty());
    CHECK(text_of(weights / "tokenizer.json") == kBpe);
    CHECK(text_of(weights / "generation_config.json") == "{\"of\": \"start\"}");
    const text::OrderedJson config = text::OrderedJson::parse(text_of(weights / "config.json"));
    CHECK(config.at("eos_token_id") == text::OrderedJson::parse("[5, 2]"));
    CHECK(config.at("bos_token_id") == 2);
    CHECK(config.at("sep_token_id") == 1);
  }
  SUBCASE("what cannot be read any more is said") {
    write(tokenizer / "tokenizer.json",
          "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    CHECK(pretrained::keep_files(training, weights.path())
              .starts_with(fmt::format("note: {} holds the weights, but copying the tokenizer "
                                       "and settings of {} failed: ",
                                       weights.path(), tokenizer.path())));
  }
}

}  // namespace smp
