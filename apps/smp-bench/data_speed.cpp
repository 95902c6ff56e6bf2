#include "data_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/read_ahead.h"
#include "smp/plan/data/token_data.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/text/json.h"

namespace smp {
namespace {

using Clock = std::chrono::steady_clock;

// A rank's batches, step by step, as its engine takes them.
class Taker {
 public:
  Taker(const JobSpec& job, const data::BatchShare& share) : data_(job), share_(share) {
    values_.resize(static_cast<size_t>(share.microbatch_values()));
  }

  // Takes steps [0, steps); or, `steps` 0, as many as `seconds` last. Returns seconds.
  double take(int64_t& steps, double seconds) {
    constexpr int64_t kEndless = int64_t{1} << 40;
    data::ReadAhead ahead(
        [this](int64_t step, int64_t first, int64_t count, const data::TokenBuffers& out) {
          data_.read(step, first, count, out);
        },
        share_);
    const Clock::time_point start = Clock::now();
    ahead.start(0, steps > 0 ? steps : kEndless);
    double taken_s = 0;
    for (int64_t step = 0; steps > 0 ? step < steps : taken_s < seconds; ++step) {
      for (int64_t i = 0; i < share_.microbatches; ++i) {
        const int64_t first = share_.first_sample + i * share_.micro_batch;
        for (int64_t reader = 0; reader < share_.readers; ++reader)
          ahead.read(step, first, share_.micro_batch, share_.microbatch_in(values_.data()));
      }
      taken_s = std::chrono::duration<double>(Clock::now() - start).count();
      if (steps == 0 && taken_s >= seconds) steps = step + 1;
    }
    return taken_s;
  }

 private:
  const data::TokenData data_;
  const data::BatchShare share_;
  std::vector<int64_t> values_;
};

// The wanted rank's share, or that of the first rank that reads.
data::BatchShare share_of(const Plan& plan, int64_t& rank) {
  const int64_t ranks = plan.degrees.world();
  if (rank >= ranks) {
    throw ConfigError(fmt::format("--rank {}: the plan has ranks 0 to {}", rank, ranks - 1));
  }
  const bool is_open = rank < 0;
  for (rank = std::max<int64_t>(rank, 0); rank < ranks; ++rank) {
    const data::BatchShare share = data::batch_share(plan, layout::rank_layout(plan, rank));
    if (share.readers > 0) return share;
    if (!is_open) break;
  }
  throw ConfigError(fmt::format(
      "--rank {}: the rank's stage reads no data: give a rank of the first or last stage", rank));
}

std::string words_of(const data::BatchShare& share) {
  std::string fields;
  const auto add = [&](bool has, const char* name) {
    if (has) fields += fmt::format("{}{}", fields.empty() ? "" : ", ", name);
  };
  add(share.tokens, "tokens");
  add(share.targets, "targets");
  add(share.document_starts, "document starts");
  return fmt::format("{} x {} samples of {} tokens: {}", share.microbatches, share.micro_batch,
                     share.sequences * share.length, fields);
}

std::string words_of(Packing pack) {
  switch (pack) {
    case Packing::kConcatenate: return "concatenate";
    case Packing::kDocuments: return "documents";
    case Packing::kPad: return "pad";
  }
  check_failed(__FILE__, __LINE__, "unknown packing");
}

std::string millions(double per_s) { return fmt::format("{:.1f} M tokens/s", per_s / 1e6); }

}  // namespace

double DataSpeed::median_tokens_per_s() const {
  std::vector<double> sorted = tokens_per_s;
  std::sort(sorted.begin(), sorted.end());
  return sorted.at(sorted.size() / 2);
}

DataSpeed measure_data(const Plan& plan, const DataSpeedRequest& request) {
  if (model::is_list(plan.job.model)) {
    throw ConfigError(
        "the plan's model reads images; `smp-bench data` supports text and tokens only");
  }
  DataSpeed speed;
  speed.rank = request.rank;
  speed.ranks = plan.degrees.world();
  const data::BatchShare share = share_of(plan, speed.rank);
  speed.batch = words_of(share);
  speed.description = data::TokenData(plan.job).description();
  speed.pack = words_of(plan.job.training.data_pack);
  speed.batch_tokens = share.microbatches * share.micro_batch * share.sequences * share.length;
  const auto rate = [&] {
    Taker taker(plan.job, share);  // anew, so that no repeat has what another one packed
    const double seconds = taker.take(speed.steps, request.seconds);
    return static_cast<double>(speed.steps * speed.batch_tokens) / seconds;
  };
  speed.first_tokens_per_s = rate();
  for (int repeat = 0; repeat < request.repeats; ++repeat) speed.tokens_per_s.push_back(rate());
  return speed;
}

std::string to_text(const DataSpeed& speed) {
  const double median = speed.median_tokens_per_s();
  const auto [least, most] =
      std::minmax_element(speed.tokens_per_s.begin(), speed.tokens_per_s.end());
  std::string text = fmt::format("rank {} of {}: {}\n", speed.rank, speed.ranks, speed.batch);
  std::string line;
  for (const char c : speed.description + "\n") {
    if (c != '\n') {
      line += c;
      continue;
    }
    text += fmt::format("source: {}\n", line);
    line.clear();
  }
  text += fmt::format("pack: {}\n", speed.pack);
  text += fmt::format("first pass: {}, over {} step{}\n", millions(speed.first_tokens_per_s),
                      speed.steps, speed.steps == 1 ? "" : "s");
  text += fmt::format("repeats: {}, the median of {} (from {:.1f} to {:.1f}); {:.3f} ms a step\n",
                      millions(median), speed.tokens_per_s.size(), *least / 1e6, *most / 1e6,
                      1e3 * static_cast<double>(speed.batch_tokens) / median);
  return text;
}

std::string to_json(const DataSpeed& speed) {
  const text::OrderedJson json = {{"rank", speed.rank},
                                  {"ranks", speed.ranks},
                                  {"pack", speed.pack},
                                  {"data", speed.description},
                                  {"batch_tokens", speed.batch_tokens},
                                  {"steps", speed.steps},
                                  {"first_tokens_per_s", speed.first_tokens_per_s},
                                  {"tokens_per_s", speed.tokens_per_s},
                                  {"median_tokens_per_s", speed.median_tokens_per_s()}};
  return json.dump(2) + "\n";
}

}  // namespace smp
