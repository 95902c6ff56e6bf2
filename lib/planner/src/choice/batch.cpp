#include "choice/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/legality.h"

namespace smp::choice {
namespace {

BatchChoices refused(std::string problem) { return {{}, std::move(problem)}; }

std::string over_limit(const JobSpec& job, const BatchShape& batch, int64_t data) {
  return fmt::format("{} > max_tokens_per_batch {}",
                     batch_equation(batch, data, job.training.sequence_length),
                     text::with_commas(job.training.max_tokens_per_batch));
}

int64_t largest_power_of_two(int64_t limit) {
  int64_t power = 1;
  while (2 * power <= limit) power *= 2;
  return power;
}

int64_t full_microbatch(const JobSpec& job) {
  return largest_power_of_two(
      std::max<int64_t>(1, kFullMicrobatchTokens / job.training.sequence_length));
}

// Drops the shapes that the ramp does not divide by; says so when none is left.
BatchChoices kept_by_ramp(const JobSpec& job, BatchChoices choices, int64_t data) {
  const TrainingSpec& training = job.training;
  if (choices.shapes.empty() || training.batch_ramp_increment == 0) return choices;
  const int64_t least = choices.shapes.back().micro_batch * data;
  std::erase_if(choices.shapes, [&](const BatchShape& batch) {
    return rules::batch_ramp_problem(training, batch.micro_batch, data).has_value();
  });
  if (!choices.shapes.empty()) return choices;
  return refused(
      fmt::format("batch_ramp_start {} and batch_ramp_increment {} are not both divisible by micro "
                  "batch x data-parallel degree = {}",
                  training.batch_ramp_start, training.batch_ramp_increment, least));
}

// `local` samples per rank and step, given by the pinned global batch; microbatches of at most
// `most_micro`.
BatchChoices split_local_batch(const JobSpec& job, int64_t local, int64_t data,
                               int64_t most_micro) {
  const TrainingSpec& training = job.training;
  if (training.micro_batch && training.microbatches) {
    if (*training.micro_batch * *training.microbatches == local) {
      return {{{*training.micro_batch, *training.microbatches}}, {}};
    }
    return refused(
        fmt::format("micro_batch {} x microbatches {} x data-parallel degree {} = {}, "
                    "global_batch is {}",
                    *training.micro_batch, *training.microbatches, data,
                    *training.micro_batch * *training.microbatches * data, *training.global_batch));
  }
  const auto divide = [&](const char* name, int64_t by) {
    return refused(
        fmt::format("global_batch {} / data-parallel degree {} = {} samples, not "
                    "divisible by {} {}",
                    *training.global_batch, data, local, name, by));
  };
  if (training.micro_batch) {
    if (local % *training.micro_batch != 0) return divide("micro_batch", *training.micro_batch);
    return {{{*training.micro_batch, local / *training.micro_batch}}, {}};
  }
  if (training.microbatches) {
    if (local % *training.microbatches != 0) return divide("microbatches", *training.microbatches);
    return {{{local / *training.microbatches, *training.microbatches}}, {}};
  }
  BatchChoices choices;
  for (const int64_t micro : divisors(local)) {
    if (micro <= most_micro) choices.shapes.push_back({micro, local / micro});
  }
  std::reverse(choices.shapes.begin(), choices.shapes.end());
  return choices;
}

BatchChoices indivisible(const TrainingSpec& training, int64_t data) {
  return refused(fmt::format("global_batch {} is not divisible by the data-parallel degree {}",
                             *training.global_batch, data));
}

BatchChoices practical_batches(const JobSpec& job, int64_t pipeline, int64_t data) {
  const TrainingSpec& training = job.training;
  if (training.global_batch) {
    if (*training.global_batch % data != 0) return indivisible(training, data);
    return split_local_batch(job, *training.global_batch / data, data, full_microbatch(job));
  }

  // Samples of one rank and step that the token limit allows.
  const int64_t most = training.max_tokens_per_batch / (data * training.sequence_length);
  const auto microbatches_for = [&](int64_t micro) {
    if (training.microbatches) return *training.microbatches;
    const int64_t wanted = pipeline == 1 ? 1 : kMicrobatchesPerStage * pipeline;
    return std::clamp<int64_t>(most / micro, 1, wanted);
  };
  if (training.micro_batch) {
    const BatchShape batch{*training.micro_batch, microbatches_for(*training.micro_batch)};
    if (batch.micro_batch * batch.microbatches > most) return refused(over_limit(job, batch, data));
    return {{batch}, {}};
  }
  const BatchShape least{1, training.microbatches.value_or(1)};
  if (least.microbatches > most) return refused(over_limit(job, least, data));
  BatchChoices choices;
  for (int64_t micro = full_microbatch(job); micro >= 1; micro /= 2) {
    const BatchShape batch{micro, microbatches_for(micro)};
    if (micro * batch.microbatches <= most) choices.shapes.push_back(batch);
  }
  return choices;
}

}  // namespace

std::string batch_equation(const BatchShape& batch, int64_t data, int64_t sequence_length) {
  const int64_t samples = batch.micro_batch * batch.microbatches * data;
  return fmt::format("{} x {} x {} = {} sample{} x {} token{} = {}", batch.micro_batch,
                     batch.microbatches, text::with_commas(data), text::with_commas(samples),
                     samples == 1 ? "" : "s", text::with_commas(sequence_length),
                     sequence_length == 1 ? "" : "s", text::with_commas(samples * sequence_length));
}

BatchChoices batch_choices(const JobSpec& job, int64_t pipeline, int64_t data) {
  return kept_by_ramp(job, practical_batches(job, pipeline, data), data);
}

BatchChoices every_batch(const JobSpec& job, int64_t pipeline, int64_t data, int64_t context) {
  const TrainingSpec& training = job.training;
  const int64_t sequence = training.sequence_length;
  const int64_t most_micro =
      largest_power_of_two(std::max<int64_t>(1, kMostMicrobatchTokens * context / sequence));
  if (training.global_batch) {
    if (*training.global_batch % data != 0) return indivisible(training, data);
    return kept_by_ramp(
        job, split_local_batch(job, *training.global_batch / data, data, most_micro), data);
  }
  const int64_t most = training.max_tokens_per_batch / (data * sequence);
  BatchChoices choices;
  const auto add = [&](int64_t micro, int64_t count) {
    if (micro * count <= most) choices.shapes.push_back({micro, count});
  };
  const auto add_counts = [&](int64_t micro) {
    if (training.microbatches) return add(micro, *training.microbatches);
    if (pipeline > 1) add(micro, 1);
    for (int64_t count = pipeline; count <= kMostMicrobatches; count *= 2) add(micro, count);
  };
  if (training.micro_batch) {
    add_counts(*training.micro_batch);
  } else {
    for (int64_t micro = most_micro; micro >= 1; micro /= 2) add_counts(micro);
  }
  if (!choices.shapes.empty()) return kept_by_ramp(job, std::move(choices), data);
  return refused(
      over_limit(job, {training.micro_batch.value_or(1), training.microbatches.value_or(1)}, data));
}

}  // namespace smp::choice
