#include "smp/plan/data/byte_tokens.h"

#include "smp/plan/data/data_files.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::data {
namespace {

// A run whose job does not say itself that tokens are bytes.
bool is_unsaid(const JobSpec& job) {
  return job.training.steps > 0 && !model::is_list(job.model) && !job.training.data_tokens;
}

}  // namespace

// For a job that is sure to read bytes. Files of other formats tell only when they are opened.
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

}  // namespace smp::data
