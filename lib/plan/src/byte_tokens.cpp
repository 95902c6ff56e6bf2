#include "smp/plan/byte_tokens.h"

#include "smp/plan/data_files.h"
#include "smp/plan/job_spec.h"
#include "smp/plan/operators.h"

namespace smp {
namespace {

// A run whose job does not say itself that tokens are bytes.
bool is_unsaid(const JobSpec& job) {
  return job.training.steps > 0 && !is_list(job.model) && !job.training.data_tokens;
}

}  // namespace

// Of one that reads bytes whatever its files say: other files tell when they are opened.
bool reads_bytes_unsaid(const JobSpec& job) {
  const TrainingSpec& training = job.training;
  const bool names_files = !training.data_path.empty() && training.data_path != kPythonStdlib;
  const bool is_text = training.data_format == DataFormat::kText;
  return is_unsaid(job) && (is_text || (training.data_sources.empty() && !names_files));
}

std::optional<std::string> why_bytes_mean_nothing(const JobSpec& job) {
  if (!is_unsaid(job)) return std::nullopt;
  if (job.model.vocab_size > kMostByteVocabulary) return kManyTokens;
  if (!job.training.init_from.empty()) return kKnowTokens;
  return std::nullopt;
}

}  // namespace smp
