#include <fmt/format.h>

#include <algorithm>

#include "jobfile/job_builder.h"
#include "smp/plan/data/data_files.h"
#include "spec/choices.h"

// Checks of the keys of training.data against each other. A check is silent if a key that it reads
// is wrong by itself.
namespace smp::jobfile {
namespace {

bool holds_token_ids(std::optional<DataFormat> format) {
  return format && *format != DataFormat::kText;
}

}  // namespace

void JobBuilder::check_data() {
  const TrainingSpec& training = spec_.training;
  const std::vector<std::string>& suffixes = training.data_suffixes;
  const bool python_only =
      std::all_of(suffixes.begin(), suffixes.end(), [](const auto& s) { return s == ".py"; });
  const bool is_stdlib = training.data_path == data::kPythonStdlib;
  if (is_stdlib && usable({"training.data.suffixes"}) && !python_only) {
    error({"training.data.suffixes"},
          fmt::format("path: python-stdlib is Python source: write suffixes: [.py] or leave "
                      "suffixes out, or give the path of a folder"));
  }
  if (!training.data_sources.empty() && !training.data_path.empty()) {
    error({"training.data.sources"}, "path and sources are both set: give one of them");
  }
  if (!training.data_sources.empty() && training.data_format) {
    error({"training.data.format"},
          "format belongs to path: with sources, give each source its own format");
  }
  if (is_stdlib && holds_token_ids(training.data_format)) {
    error({"training.data.format"}, fmt::format("path: python-stdlib is text, but format is {}",
                                                choice_name(*training.data_format)));
  }
  if (training.data_tokens && holds_token_ids(training.data_format)) {
    error({"training.data.tokens"}, fmt::format("tokens: bytes needs files of text, but format {} "
                                                "holds token ids: leave out one of the two keys",
                                                choice_name(*training.data_format)));
  }
  const bool is_pair = spec_.model.stack == Stack::kEncoderDecoder;
  if (is_pair && training.data_pack != Packing::kConcatenate && usable({"model.stack"})) {
    error({"training.data.pack"},
          fmt::format(
              "pack: {} needs stack: decoder; with an encoder_decoder write pack: concatenate",
              choice_name(training.data_pack)));
  }
  const auto end = training.data_end_of_document;
  if (end && usable({"model.vocab_size"}) && *end >= spec_.model.vocab_size) {
    error({"training.data.end_of_document"},
          fmt::format("end_of_document ({}) must be a token of the model, 0 to {}", *end,
                      spec_.model.vocab_size - 1));
  }
  const std::vector<int64_t>& split = training.data_split;
  if (split.empty()) return;
  if (split.size() != 3 || split[0] == 0) {
    error({"training.data.split"},
          "split needs three parts, for training (above 0), for evaluation and left out, as in "
          "[98, 1, 1]");
  } else if (split[1] == 0 && training.evaluation.every_steps > 0 &&
             training.evaluation.sets.empty()) {
    error({"training.data.split"},
          "split leaves no data for evaluation: set its second part above 0, or give "
          "evaluation.sets");
  }
}

}  // namespace smp::jobfile
