#include "smp/plan/data/token_data.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "files_and_errors.h"
#include "plan/data/corpus.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"

namespace smp {
namespace {

using corpus::Batch;
using corpus::job_on;
using corpus::Tokens;
using corpus::write_bytes;

Tokens counted(int64_t count, int64_t first = 0) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

JobSpec text_job(const std::string& path, int64_t length, int64_t batch = 1) {
  JobSpec job = job_on(path, length, batch);
  job.model.vocab_size = 256;
  return job;
}

std::string refusal(const JobSpec& job) {
  return error_of([&] { const data::TokenData data(job); });
}

}  // namespace

TEST_CASE("samples of text are its windows, each once an epoch, across file ends") {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "abcd");
  write_bytes(folder / "b.txt", "e");
  write_bytes(folder / "c.txt", "\xff!xyz");
  const std::string text("abcd\0e\0\xff!xyz", 12);
  const data::TokenData data(text_job(folder.path(), 2));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> windows;
    for (int64_t i = 0; i < 5; ++i) {
      const data::SamplePlace place = data.place(5 * epoch + i, 0);
      CHECK(place.epoch == epoch);
      windows.insert(place.sample);
      const Batch batch = corpus::read(data, 5 * epoch + i, 0, 1, 2);
      for (size_t k = 0; k < 2; ++k) {
        const size_t at = static_cast<size_t>(2 * place.sample) + k;
        CHECK(batch.tokens[k] == static_cast<unsigned char>(text[at]));
        CHECK(batch.targets[k] == static_cast<unsigned char>(text[at + 1]));
        CHECK(batch.starts[k] == 0);
      }
    }
    CHECK(windows == std::set<int64_t>{0, 1, 2, 3, 4});
  }
  CHECK(data.trained_tokens() == 12);
  CHECK(data.description() ==
        "0.0 MiB of text in 3 files under " + folder.path() + "; each byte is one of 256 tokens");
}

TEST_CASE(
    "an encoder's tokens are the first half of a window, the decoder's lag behind its targets") {
  const ScratchFolder folder;
  write_bytes(folder / "a.npy", corpus::npy("<u2", "(12,)", corpus::raw<uint16_t>(counted(12))));
  JobSpec job = job_on(folder / "a.npy", 3, 2);
  job.model.stack = Stack::kEncoderDecoder;
  const data::TokenData data(job);
  const Batch batch = corpus::read(data, 0, 0, 2, 3, 2);
  for (int64_t k = 0; k < 2; ++k) {
    const int64_t begin = 6 * data.place(0, k).sample;
    const auto row = [&](const Tokens& from, int64_t number) {
      return Tokens(from.begin() + 3 * number, from.begin() + 3 * number + 3);
    };
    CHECK(row(batch.tokens, k) == counted(3, begin));
    CHECK(row(batch.targets, k) == counted(3, begin + 3));
    CHECK(row(batch.tokens, 2 + k) == Tokens{0, begin + 3, begin + 4});
  }
}

TEST_CASE("the batch of a step is the same however ranks and shards share it, and after a resume") {
  const ScratchFolder folder;
  const Tokens tokens = counted(5000);
  std::filesystem::create_directories(folder / "shards");
  write_bytes(folder / "whole.bin", corpus::llmc(tokens, false));
  for (int64_t i = 0; i < 5; ++i) {  // of different lengths
    const int64_t begin = i * i * 200, end = i == 4 ? 5000 : (i + 1) * (i + 1) * 200;
    write_bytes(folder / fmt::format("shards/{}.bin", i),
                corpus::llmc({tokens.begin() + begin, tokens.begin() + end}, i % 2 == 0));
  }
  const data::TokenData whole(job_on(folder / "whole.bin", 32, 8));
  for (int64_t step = 0; step < 40; ++step) {
    const Batch all = corpus::read(whole, step, 0, 8, 32);
    const data::TokenData resumed(job_on(folder / "shards", 32, 8));  // begins with this step
    Batch joined;
    for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 4}}) {
      const Batch part = corpus::read(resumed, step, first, count, 32);
      joined.tokens.insert(joined.tokens.end(), part.tokens.begin(), part.tokens.end());
      joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      joined.starts.insert(joined.starts.end(), part.starts.begin(), part.starts.end());
    }
    REQUIRE(joined == all);
  }
}

TEST_CASE("a mixture gives each source its share, in epochs of its own, in any layout") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", {counted(65)});
  write_bytes(folder / "b.npy",
              corpus::npy("<i4", "(1025,)", corpus::raw<int32_t>(counted(1025, 10000))));
  JobSpec job = job_on("", 8, 4);
  job.training.data_sources = {{"", folder / "a", {}, 0.25}, {"bee", folder / "b.npy", {}, 0.75}};
  const data::TokenData data(job);
  CHECK(data.source_name(1) == "bee");
  std::map<size_t, int64_t> given;
  for (int64_t n = 0; n < 400; ++n) {
    const data::SamplePlace place = data.place(n / 4, n % 4);
    CHECK(place.epoch == given[place.source] / (place.source == 0 ? 8 : 128));
    ++given[place.source];
    const Batch batch = corpus::read(data, n / 4, n % 4, 1, 8);
    CHECK(batch.tokens[0] == (place.source == 0 ? 0 : 10000) + 8 * place.sample);
  }
  CHECK(given[0] == 100);
  CHECK(data.epochs(400) == std::vector<double>{100.0 / 8, 300.0 / 128});
  const data::TokenData again(job);
  CHECK(again.place(99, 3) == data.place(99, 3));
  CHECK(data.description() ==
        "weight 1: 65 tokens (megatron) in 1 file under " + (folder / "a") +
            "; 1 documents; 8 samples an epoch\nweight 3: 1025 tokens (npy) in 1 file under " +
            (folder / "b.npy") + "; 128 samples an epoch");
}

TEST_CASE("what is held out at the end is never trained on, and mixed like what is") {
  const ScratchFolder folder;
  write_bytes(folder / "a.npy", corpus::npy("<u2", "(200,)", corpus::raw<uint16_t>(counted(200))));
  write_bytes(folder / "b.npy",
              corpus::npy("<u2", "(300,)", corpus::raw<uint16_t>(counted(300, 1000))));
  JobSpec job = job_on("", 8, 2);
  job.training.data_sources = {{"", folder / "a.npy", {}, 1}, {"", folder / "b.npy", {}, 2}};
  job.training.evaluation.every_steps = 1;
  job.training.evaluation.samples = 6;
  const data::TokenData data(job);
  CHECK(data.evaluation_sets() == std::vector<std::string>{""});
  std::set<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) first.insert(corpus::read_held_out(data, i, 1, 8).tokens[0]);
  // 2 x 8 + 1 of the 200 tokens, 4 x 8 + 1 of the 300.
  CHECK(first == std::set<int64_t>{183, 191, 1267, 1275, 1283, 1291});
  for (int64_t step = 0; step < 200; ++step) {
    for (const int64_t target : corpus::read(data, step, 0, 2, 8).targets) {
      CHECK((target < 183 || (target >= 1000 && target < 1267)));
    }
  }
  // What fills the last batch has nothing to predict.
  const Batch padded = corpus::read_held_out(data, 5, 2, 8);
  CHECK(padded.tokens[8] == padded.tokens[0]);
  CHECK(padded.targets[0] != data::kNoTarget);
  CHECK(Tokens(padded.targets.begin() + 8, padded.targets.end()) == Tokens(8, data::kNoTarget));
}

TEST_CASE("a split is by documents where an index says where they end, else by tokens") {
  const ScratchFolder folder;
  std::vector<Tokens> documents;
  for (int64_t i = 0; i < 10; ++i) documents.push_back(counted(10 + i % 2, 100 * i));
  corpus::write_megatron16(folder / "a", documents);
  JobSpec job = job_on(folder / "a", 4, 2);
  job.training.data_split = {8, 1, 1};
  job.training.evaluation.every_steps = 1;
  const data::TokenData data(job);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 40; ++step) {
    for (const int64_t token : corpus::read(data, step, 0, 2, 4).targets) seen.insert(token / 100);
  }
  CHECK(seen == std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(corpus::read_held_out(data, 0, 1, 4).tokens == Tokens{800, 801, 802, 803});
  CHECK(corpus::read_held_out(data, 1, 1, 4).targets == Tokens{805, 806, 807, 808});
  job.training.evaluation.samples = 4;
  CHECK(refusal(job) ==
        "training.data.split: [8, 1, 1] of the 105 tokens of " + (folder / "a") +
            " gives 20 samples to train on and 2 to evaluate on; at least 1 and 4 are needed");
  write_bytes(folder / "n.npy", corpus::npy("<u2", "(100,)", corpus::raw<uint16_t>(counted(100))));
  JobSpec tokens = job_on(folder / "n.npy", 4, 2);
  tokens.training.data_split = {90, 10, 0};
  tokens.training.evaluation.every_steps = 1;
  CHECK(data::TokenData(tokens).trained_tokens() == 90);
  CHECK(corpus::read_held_out(data::TokenData(tokens), 0, 1, 4).tokens == counted(4, 90));
}

TEST_CASE("sets of their own are evaluated on, by name, and nothing is held out") {
  const ScratchFolder folder;
  write_bytes(folder / "a.npy", corpus::npy("<u2", "(200,)", corpus::raw<uint16_t>(counted(200))));
  write_bytes(folder / "v.npy",
              corpus::npy("<u2", "(33,)", corpus::raw<uint16_t>(counted(33, 1000))));
  corpus::write_megatron16(folder / "w", {counted(40, 2000)});
  JobSpec job = job_on(folder / "a.npy", 8, 2);
  job.training.evaluation.every_steps = 1;
  job.training.evaluation.samples = 4;
  job.training.evaluation.sets = {{"code", folder / "v.npy", {}}, {"wiki", folder / "w", {}}};
  const data::TokenData data(job);
  CHECK(data.evaluation_sets() == std::vector<std::string>{"code", "wiki"});
  CHECK(data.trained_tokens() == 200);
  CHECK(corpus::read_held_out(data, 1, 1, 8, 0).tokens == counted(8, 1008));
  CHECK(corpus::read_held_out(data, 0, 1, 8, 1).targets == counted(8, 2001));
  CHECK(data.files().size() == 1);
  CHECK(data.evaluation_files().size() == 3);
  job.training.evaluation.samples = 6;
  CHECK(refusal(job) ==
        "training.evaluation.sets: code: " + (folder / "v.npy") +
            " holds 4 samples of 8 tokens, fewer than training.evaluation.samples (6)");
}

TEST_CASE("documents end with the token that the job names") {
  const ScratchFolder folder;
  Tokens tokens;
  for (int64_t i = 0; i < 1000; ++i) tokens.push_back(i % 7 == 6 || i % 11 == 3 ? 9999 : i);
  write_bytes(folder / "a.bin", corpus::raw<uint16_t>(tokens));
  JobSpec job = job_on(folder / "a.bin", 16, 2);
  job.training.data_format = DataFormat::kNanogpt;
  job.training.data_pack = Packing::kDocuments;
  CHECK(refusal(job) == "training.data.pack: documents: the ends of documents in " +
                            (folder / "a.bin") +
                            " are unknown: give the token that ends a document as "
                            "training.data.end_of_document, or files with an index");
  job.training.data_end_of_document = 9999;
  const data::TokenData data(job);
  int64_t ends = 0;
  for (int64_t n = 0; n < 62; ++n) {
    const Batch batch = corpus::read(data, n / 2, n % 2, 1, 16);
    for (size_t i = 0; i < 16; ++i) {
      const bool is_end = batch.tokens[i] == 9999;
      ends += is_end ? 1 : 0;
      CHECK((batch.targets[i] == data::kNoTarget) == is_end);
      if (is_end && i + 1 < 16) CHECK(batch.starts[i + 1] == static_cast<int64_t>(i) + 1);
    }
  }
  CHECK(ends == std::count(tokens.begin(), tokens.begin() + 62 * 16, 9999));
}

TEST_CASE("padded samples hold one document each") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}, {}});
  JobSpec job = job_on(folder / "a", 4, 2);
  job.training.data_pack = Packing::kPad;
  CHECK(refusal(job) == "training.data.pack: pad: " + (folder / "a") +
                            " has a document of 5 tokens, more than sequence_length 4: write "
                            "training.data.longer: truncate, or pack: documents");
  job.training.data_longer = "truncate";
  const data::TokenData data(job);
  std::map<int64_t, Batch> by_document;
  for (int64_t n = 0; n < 4; ++n)
    by_document[data.place(n / 2, n % 2).sample] = corpus::read(data, n / 2, n % 2, 1, 4);
  CHECK(by_document[0] == Batch{{1, 2, 3, 0}, {2, 3, -1, -1}, {0, 0, 0, 3}});
  CHECK(by_document[1] == Batch{{4, 0, 0, 0}, {-1, -1, -1, -1}, {0, 1, 1, 1}});
  CHECK(by_document[2] == Batch{{5, 6, 7, 8}, {6, 7, 8, 9}, {0, 0, 0, 0}});
  CHECK(by_document[3] == Batch{{0, 0, 0, 0}, {-1, -1, -1, -1}, {0, 0, 0, 0}});
  write_bytes(folder / "n.npy", corpus::npy("<u2", "(9,)", corpus::raw<uint16_t>(counted(9))));
  job.training.data_path = folder / "n.npy";
  CHECK(refusal(job) ==
        "training.data.pack: pad needs an index of documents, which " + (folder / "n.npy") +
            " does not have: give Megatron's .bin and .idx, or write pack: documents");
}

TEST_CASE("a mask says which predicted tokens count, as bytes or as labels") {
  const ScratchFolder folder;
  const std::vector<Tokens> documents = {counted(5), counted(6, 5), counted(8, 11)};
  corpus::write_megatron16(folder / "a", documents);
  const auto counts = [](int64_t token) { return token % 3 != 0; };
  std::string mask;
  Tokens labels;
  for (int64_t token = 0; token < 19; ++token) {
    mask += counts(token) ? '\1' : '\0';
    labels.push_back(counts(token) ? token : -100);
  }
  const std::pair<const char*, std::string> forms[] = {
      {"a.mask.bin", mask},
      {"a.labels.bin", corpus::raw<int32_t>(labels)},
      {"a.labels.npy", corpus::npy("<i8", "(19,)", corpus::raw<int64_t>(labels))}};
  JobSpec job = job_on(folder / "a", 6, 3);
  job.training.data_loss_mask = true;
  CHECK(refusal(job) == "training.data.loss_mask: no " + (folder / "a") +
                            ".mask.bin, .labels.npy or .labels.bin exists for the tokens of " +
                            (folder / "a.bin"));
  for (const auto& form : forms) {
    write_bytes(folder / form.first, form.second);
    for (const Packing pack : {Packing::kConcatenate, Packing::kDocuments, Packing::kPad}) {
      job.training.data_pack = pack;
      job.training.data_longer = "truncate";
      const data::TokenData data(job);
      const Batch batch = corpus::read(data, 0, 0, 3, 6);
      for (size_t i = 0; i < 18; ++i) {
        const int64_t next = batch.tokens[i] + 1;
        const bool ends = pack != Packing::kConcatenate && (next == 5 || next == 11 || next == 19);
        const bool is_padding = pack == Packing::kPad && batch.starts[i] > 0;
        CHECK(batch.targets[i] == (is_padding || ends || !counts(next) ? data::kNoTarget : next));
      }
    }
    std::filesystem::remove(folder / form.first);
  }
  job.training.data_pack = Packing::kConcatenate;
  write_bytes(folder / "a.mask.bin", mask);
  write_bytes(folder / "a.labels.bin", "x");
  CHECK(refusal(job) == "training.data.loss_mask: " + (folder / "a.mask.bin") + " and " +
                            (folder / "a.labels.bin") + " are both masks of " + (folder / "a.bin") +
                            ": keep one of them");
  std::filesystem::remove(folder / "a.labels.bin");
  write_bytes(folder / "a.mask.bin", mask + "\1");
  CHECK(refusal(job) == "training.data.loss_mask: " + (folder / "a.mask.bin") +
                            " has 20 bytes, expected 19 for the 19 tokens in " +
                            (folder / "a.bin") + ": the mask belongs to other tokens");
  mask[7] = '\2';
  write_bytes(folder / "a.mask.bin", mask);
  CHECK(error_of([&] { corpus::read(data::TokenData(job), 0, 0, 3, 6); }) ==
        "training.data.loss_mask: " + (folder / "a.mask.bin") +
            " has 2 at token 7, expected 0 or 1");
  std::filesystem::remove(folder / "a.mask.bin");
  labels[7] = 8;
  write_bytes(folder / "a.labels.bin", corpus::raw<int32_t>(labels));
  CHECK(error_of([&] { corpus::read(data::TokenData(job), 0, 0, 3, 6); }) ==
        "training.data.loss_mask: " + (folder / "a.labels.bin") +
            " has 8 at token 7, expected the token 7 or -100");
  write_bytes(folder / "t.txt", std::string(100, 'x'));
  JobSpec text = text_job(folder / "t.txt", 4);
  text.training.data_loss_mask = true;
  CHECK(refusal(text) == "training.data.loss_mask: " + (folder / "t.txt") +
                             " is text, but only files of tokens have masks: leave the key out");
}

TEST_CASE("too little data is refused with its numbers") {
  const ScratchFolder folder;
  write_bytes(folder / "short", "1234");
  CHECK(refusal(text_job(folder / "short", 4)) ==
        "training.data.path: " + (folder / "short") +
            " holds 4 bytes, fewer than one sample of 5 (sequence_length 4 + 1)");
  JobSpec two = text_job(folder / "short", 3);
  two.model.stack = Stack::kEncoderDecoder;
  CHECK(refusal(two) == "training.data.path: " + (folder / "short") +
                            " holds 4 bytes, fewer than one sample of 6 (2 x sequence_length 3: "
                            "the encoder reads one sequence, the decoder writes the next)");
  write_bytes(folder / "batch", "1234567");
  CHECK(refusal(text_job(folder / "batch", 2, 3)) == "no error");
  CHECK(refusal(text_job(folder / "batch", 2, 4)) ==
        "training.data.path: " + (folder / "batch") +
            " holds 7 bytes, 3 samples of 2 to train on, fewer than one batch of 4: give more "
            "data, or a smaller training.global_batch");
  JobSpec mixed = job_on("", 2, 12);
  mixed.model.vocab_size = 256;
  mixed.training.data_sources = {{"", folder / "batch", {}, 1}, {"", folder / "batch", {}, 2}};
  CHECK(refusal(mixed) == "training.data.sources[1]: " + (folder / "batch") +
                              " holds 7 bytes, 3 samples of 2 to train on, fewer than its share of "
                              "one batch of 4: give more data, or a smaller training.global_batch");
  write_bytes(folder / "text", std::string(100, 'x'));
  JobSpec held = text_job(folder / "text", 8, 6);
  held.training.evaluation.every_steps = 10;
  held.training.evaluation.samples = 12;
  CHECK(refusal(held) ==
        "training.evaluation.samples: " + (folder / "text") +
            " holds 100 bytes, too few for 12 held-out samples of 8 bytes and one to train on");
}

TEST_CASE("evaluation runs whole batches, or a padded last one") {
  TrainingSpec training;
  training.global_batch = 6;
  CHECK(data::held_out_samples(training) == 0);
  training.evaluation.every_steps = 10;
  CHECK(data::held_out_samples(training) == 6);
  training.evaluation.samples = 8;
  CHECK(error_of([&] { data::held_out_samples(training); }) ==
        "training.evaluation.samples (8) is not a multiple of global_batch (6): the last batch has "
        "2 of 6 samples; write 12 samples, or pad_last_batch: true");
  training.evaluation.pad_last_batch = true;
  CHECK(data::held_out_samples(training) == 8);
  training.data_split = {98, 1, 1};
  CHECK(data::held_out_samples(training) == 0);
  CHECK(data::evaluation_samples(training) == 8);
}

TEST_CASE("bytes that would mean nothing are refused, and token ids are no bytes") {
  const ScratchFolder folder;
  write_bytes(folder / "t.txt", std::string(100, 'x'));
  write_bytes(folder / "n.npy", corpus::npy("<u2", "(9,)", corpus::raw<uint16_t>(counted(9))));
  JobSpec job = job_on(folder / "t.txt", 4);
  job.training.steps = 10;
  CHECK(refusal(job).starts_with("model.vocab_size: above 512 (the engine has no tokenizer"));
  job.training.data_tokens = TokenKind::kBytes;
  CHECK(refusal(job) == "no error");
  job.training.data_path = folder / "n.npy";
  CHECK(refusal(job) == "training.data.tokens: bytes needs text, but " + (folder / "n.npy") +
                            " holds token ids (npy): leave the key out");
  job.training.data_tokens = {};
  CHECK(refusal(job) == "no error");
  job.training.data_end_of_document = 3;
  CHECK(refusal(job) == "no error");
  job.training.data_path = folder / "t.txt";
  job.model.vocab_size = 255;
  CHECK(refusal(job) == "model.vocab_size: 255 is too small for byte tokens: give at least 256");
  job.model.vocab_size = 256;
  CHECK(refusal(job) == "training.data.end_of_document: leave the key out for " +
                            (folder / "t.txt") + ": each file of text is one document");
  corpus::write_megatron16(folder / "m", {counted(20)});
  job.training.data_path = folder / "m";
  CHECK(refusal(job) == "training.data.end_of_document: leave the key out for " + (folder / "m") +
                            ": the ends of documents are in its index");
}

TEST_CASE("a file that shrinks, grows, is exchanged or goes during the run is named") {
  const ScratchFolder folder;
  const std::string path = folder / "text";
  write_bytes(path, std::string(100, 'x'));
  const data::TokenData data(text_job(path, 99));
  corpus::read(data, 0, 0, 1, 99);
  const auto error = [&] { return error_of([&] { corpus::read(data, 0, 0, 1, 99); }); };
  const std::string changed = "'" + path + "' has changed since the run began: it had 100 bytes (";
  SUBCASE("shorter") {
    write_bytes(path, "gone");
    CHECK(error() == "training.data.path: " + path +
                         " is now shorter than the 100 bytes that it had at the start of the run");
  }
  SUBCASE("replaced") {
    write_bytes(folder / "other", std::string(100, 'y'));
    std::filesystem::rename(folder / "other", path);
    CHECK(error().starts_with(changed));
  }
  SUBCASE("written again") {
    write_bytes(path, std::string(100, 'y'));
    CHECK(error().starts_with(changed));
  }
  SUBCASE("longer") {
    write_bytes(path, std::string(101, 'x'));
    CHECK(error().starts_with(changed));
  }
  SUBCASE("the same again") {
    write_bytes(path, std::string(100, 'x'));
    CHECK(error() == "no error");
  }
  SUBCASE("removed") {
    std::filesystem::remove(path);
    CHECK(error() == "training.data.path: cannot read " + path + ": No such file or directory");
  }
}

TEST_CASE("an index that changes during the run is named too") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", corpus::counted_documents(100, 30));
  JobSpec job = job_on(folder / "a", 16, 2);
  job.training.data_pack = Packing::kDocuments;
  const data::TokenData data(job);
  corpus::read(data, 0, 0, 2, 16);
  write_bytes(folder / "a.idx", text_of(folder / "a.idx") + "more");
  CHECK(error_of([&] {
          corpus::read(data, 0, 0, 2, 16);
        }).starts_with("'" + (folder / "a.idx") + "' has changed since the run began"));
}

}  // namespace smp
