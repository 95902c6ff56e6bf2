#include "batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/planner/legality.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

BatchChoices refused(std::string problem) { return {{}, std::move(problem)}; }

std::string over_limit(const JobSpec& job, const BatchShape& batch, int64_t data) {
  return fmt::format("{} > max_tokens_per_batch {}",
                     batch_equation(batch, data, job.training.sequence_length),
                     with_commas(job.training.max_tokens_per_batch));
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

// `local` samples per rank and step, given by the pinned global batch.
BatchChoices split_local_batch(const JobSpec& job, int64_t local, int64_t data) {
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
    if (micro <= full_microbatch(job)) choices.shapes.push_back({micro, local / micro});
  }
  std::reverse(choices.shapes.begin(), choices.shapes.end());
  return choices;
}

}  // namespace

std::string batch_equation(const BatchShape& batch, int64_t data, int64_t sequence_length) {
  const int64_t samples = batch.micro_batch * batch.microbatches * data;
  return fmt::format("{} x {} x {} = {} samples x {} tokens = {}", batch.micro_batch,
                     batch.microbatches, with_commas(data), with_commas(samples),
                     with_commas(sequence_length), with_commas(samples * sequence_length));
}

BatchChoices batch_choices(const JobSpec& job, int64_t pipeline, int64_t data) {
  const TrainingSpec& training = job.training;
  if (training.global_batch) {
    if (*training.global_batch % data != 0) {
      return refused(fmt::format("global_batch {} is not divisible by the data-parallel degree {}",
                                 *training.global_batch, data));
    }
    return split_local_batch(job, *training.global_batch / data, data);
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

}  // namespace smp
