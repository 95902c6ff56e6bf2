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
          fmt::format("data python-stdlib is Python source: write suffixes: [.py] or none, or the "
                      "path of a folder with the files wanted"));
  }
  if (!training.data_sources.empty() && !training.data_path.empty()) {
    error({"training.data.sources"},
          "path and sources both say what is trained on: give one of them");
  }
  if (!training.data_sources.empty() && training.data_format) {
    error({"training.data.format"}, "format is that of path: each of sources has its own");
  }
  if (is_stdlib && holds_token_ids(training.data_format)) {
    error({"training.data.format"}, fmt::format("data python-stdlib is text, not format {}",
                                                choice_name(*training.data_format)));
  }
  if (training.data_tokens && holds_token_ids(training.data_format)) {
    error({"training.data.tokens"},
          fmt::format("tokens: bytes are of text, and format {} holds token ids: leave one out",
                      choice_name(*training.data_format)));
  }
  const bool is_pair = spec_.model.stack == Stack::kEncoderDecoder;
  if (is_pair && training.data_pack != Packing::kConcatenate && usable({"model.stack"})) {
    error({"training.data.pack"},
          fmt::format("pack: {} is for decoders: an encoder_decoder reads one long text",
                      choice_name(training.data_pack)));
  }
  const auto end = training.data_end_of_document;
  if (end && usable({"model.vocab_size"}) && *end >= spec_.model.vocab_size) {
    error({"training.data.end_of_document"},
          fmt::format("end_of_document ({}) is none of the model's tokens, 0 to {}", *end,
                      spec_.model.vocab_size - 1));
  }
  const std::vector<int64_t>& split = training.data_split;
  if (split.empty()) return;
  if (split.size() != 3 || split[0] == 0) {
    error({"training.data.split"},
          "split has three parts, to train on, to evaluate on and to keep out, the first above 0: "
          "as in [98, 1, 1]");
  } else if (split[1] == 0 && training.evaluation.every_steps > 0 &&
             training.evaluation.sets.empty()) {
    error({"training.data.split"},
          "split leaves nothing to evaluate on: give its second part, or evaluation.sets");
  }
}

}  // namespace smp::jobfile
