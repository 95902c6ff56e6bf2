#include "show_samples.h"

#include <fmt/format.h>

#include "command_line.h"
#include "option_values.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/token_data.h"
#include "smp/plan/model/operators.h"

namespace smp {

StepRange step_range_of(const std::string& text) {
  const size_t dash = text.find('-');
  const std::optional<int64_t> first = whole_number(text.substr(0, dash));
  const std::optional<int64_t> last =
      dash == std::string::npos ? first : whole_number(text.substr(dash + 1));
  if (first && last && *first >= 1 && *last >= *first) return {*first, *last};
  throw request::UsageError(fmt::format(
      "--show-samples '{}': expected steps from 1, as in --show-samples 3-5 or --show-samples 3",
      text));
}

void show_samples(const Plan& plan, const StepRange& steps,
                  const std::function<bool(const std::string&)>& print) {
  if (model::is_list(plan.job.model)) {
    throw ConfigError(
        "--show-samples: the model reads images, and only samples of text and tokens can be shown");
  }
  const int64_t last = plan.job.training.steps;
  if (last > 0 && steps.last > last) {
    throw ConfigError(
        fmt::format("--show-samples {}-{}: the plan has steps 1 to {} (training.steps)",
                    steps.first, steps.last, last));
  }
  const data::TokenData data(plan.job);
  const int64_t batch = plan.job.training.global_batch.value();
  for (int64_t step = steps.first; step <= steps.last; ++step) {
    std::string text;
    for (int64_t sample = 0; sample < batch; ++sample) {
      const data::SamplePlace place = data.place(step - 1, sample);
      for (const data::TokenData::Piece& one : data.pieces(place)) {
        const data::DocumentPiece& piece = one.piece;
        text += fmt::format("step {}  sample {}  source {}  epoch {}  ", step, sample,
                            data.source_name(place.source), place.epoch);
        if (piece.document >= 0) text += fmt::format("document {}  ", piece.document);
        text += fmt::format("offset {}  tokens {}  {}\n", piece.offset, piece.length, one.place);
      }
    }
    if (!print(text)) return;
  }
}

}  // namespace smp
