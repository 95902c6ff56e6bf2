#include "search/pricer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cost/in_engine.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::search {
namespace {

double tokens_of(const JobSpec& job, const choice::LayoutChoice& choice) {
  return static_cast<double>(choice.data()) * choice.micro_batch * choice.microbatches *
         static_cast<double>(job.training.sequence_length);
}

}  // namespace

Pricer::Pricer(const JobSpec& job, std::shared_ptr<cost::ProgramTable> programs)
    : job_(job),
      in_engine_(cost::is_of_engine(job)),
      costs_(job, std::move(programs)),
      memory_(job),
      time_(job) {}

// A job of its own, and its pricer.
struct Pricer::WithCollectives {
  WithCollectives(JobSpec of, std::shared_ptr<cost::ProgramTable> programs)
      : job(std::move(of)), pricer(job, std::move(programs)) {}

  JobSpec job;
  Pricer pricer;
};

Pricer::~Pricer() = default;

Pricer& Pricer::with_collectives(const GroupCollectives& groups,
                                 std::optional<CollectivesKind> others) {
  for (const auto& known : with_collectives_) {
    const ParallelSpec& own = known->job.parallel;
    if (own.collectives == groups && own.data_collectives == others) return known->pricer;
  }
  JobSpec job = job_;
  job.parallel.collectives = groups;
  job.parallel.data_collectives = others;
  with_collectives_.push_back(std::make_unique<WithCollectives>(std::move(job), costs_.programs()));
  return with_collectives_.back()->pricer;
}

const time::TimePrediction& Pricer::played_step(const choice::LayoutChoice& choice,
                                                const Plan& plan) {
  const ParallelSpec& own = job_.parallel;
  const ParallelSpec& other = plan.job.parallel;
  const bool is_own =
      other.collectives == own.collectives && other.data_collectives == own.data_collectives;
  Pricer& pricer = is_own ? *this : with_collectives(other.collectives, other.data_collectives);
  return played_steps_.of(choice, plan, pricer.costs(choice));
}

double host_bytes_needed(const JobSpec& job, const memory::MemoryEstimate& memory) {
  return memory.host_bytes * static_cast<double>(job.cluster.processes_per_host);
}

prediction::Fit Pricer::fit(const choice::LayoutChoice& choice,
                            const memory::MemoryEstimate& memory) const {
  const ClusterSpec& cluster = job_.cluster;
  if (cluster.host_memory_bytes > 0 && memory.host_bytes > 0 &&
      host_bytes_needed(job_, memory) > static_cast<double>(cluster.host_memory_bytes)) {
    return prediction::Fit::kNo;
  }
  if (!refused_.empty() && std::find(refused_.begin(), refused_.end(), choice) != refused_.end()) {
    return prediction::Fit::kNo;
  }
  if (raised_ == 1) return prediction::fit_of(job_, choice, memory);
  memory::MemoryEstimate raised = memory;
  raised.peak_bytes *= raised_;
  raised.allocated_bytes *= raised_;
  raised.reserved_bytes *= raised_;
  return prediction::fit_of(job_, choice, raised);
}

void Pricer::refuse(const choice::LayoutChoice& choice, double ratio) {
  refused_.push_back(choice);
  least_ratio_ = least_ratio_ == 0 ? ratio : std::min(least_ratio_, ratio);
}

bool Pricer::raise_peaks() {
  constexpr int kMostRaises = 8;
  constexpr double kLeastRaise = 1.01;
  if (least_ratio_ == 0 || ++raises_ > kMostRaises) return false;
  raised_ = std::max(raised_ * kLeastRaise, least_ratio_);
  least_ratio_ = 0;
  return true;
}

double Pricer::per_token(const choice::LayoutChoice& choice, double step_s) const {
  return step_s / tokens_of(job_, choice);
}

Candidate Pricer::price(const choice::LayoutChoice& choice) {
  return with_memory(price_time(choice));
}

Candidate Pricer::price_time(const choice::LayoutChoice& choice) {
  ++statistics_.bounds;
  const cost::LayerCosts& costs = costs_.of(choice);
  const time::TimeEstimate time = time_.step(choice, costs.bytes, costs.seconds);
  double least_s = time.step_s - time[time::TimePart::kBubble] + time.least_bubble_s;
  if (in_engine_) {
    least_s -=
        time::kMostHidden * (time[time::TimePart::kSharding] + time[time::TimePart::kReplica]);
  }
  return {choice,
          time.step_s,
          per_token(choice, time.step_s),
          std::numeric_limits<double>::infinity(),
          prediction::Fit::kNo,
          per_token(choice, least_s)};
}

Candidate Pricer::with_memory(const Candidate& timed) {
  --statistics_.bounds;
  ++statistics_.evaluations;
  const memory::MemoryEstimate memory =
      memory_.fullest(timed.choice, costs_.of(timed.choice).bytes);
  Candidate candidate = timed;
  candidate.peak_bytes = memory.peak_bytes;
  candidate.fit = noted(fit(timed.choice, memory));
  return candidate;
}

Candidate Pricer::price_memory(const choice::LayoutChoice& choice) {
  ++statistics_.bounds;
  const memory::MemoryEstimate memory = memory_.fullest(choice, costs_.of(choice).bytes);
  return {choice, 0, 0, memory.peak_bytes, noted(fit(choice, memory))};
}

double Pricer::least_step_s(const choice::LayoutChoice& choice) {
  ++statistics_.bounds;
  const cost::LayerCosts& costs = costs_.of(choice);
  const time::TimeEstimate& time = time_.pipeline(choice, costs.bytes, costs.seconds).time;
  double least = time.least_bubble_s;
  for (const time::TimePart part :
       {time::TimePart::kMatmul, time::TimePart::kMemoryBound, time::TimePart::kLaunch,
        time::TimePart::kTensor, time::TimePart::kContext, time::TimePart::kExpert}) {
    least += time[part];
  }
  return least;
}

PricedLayout Pricer::detail(const choice::LayoutChoice& choice) {
  const cost::LayerCosts& costs = costs_.of(choice);
  PricedLayout layout;
  layout.choice = choice;
  layout.memory = memory::estimate_memory(job_, choice, costs.bytes);
  layout.time = time::estimate_time(job_, choice, costs.bytes, costs.seconds);
  layout.fit = fit(choice, layout.memory);
  layout.seconds_per_token = per_token(choice, layout.time.step_s);
  const ClusterSpec& cluster = job_.cluster;
  layout.cost_per_token = layout.seconds_per_token / 3600 * cluster.price_per_host_hour *
                          static_cast<double>(cluster.hosts);
  return layout;
}

std::string memory_problem(const JobSpec& job, const PricedLayout& layout) {
  const ClusterSpec& cluster = job.cluster;
  const memory::MemoryEstimate& memory = layout.memory;
  const double host = host_bytes_needed(job, memory);
  if (cluster.host_memory_bytes > 0 && host > static_cast<double>(cluster.host_memory_bytes)) {
    return fmt::format("{} of host memory, a host has {}",
                       text::human_bytes(text::whole_bytes(host)),
                       text::human_bytes(cluster.host_memory_bytes));
  }
  std::array<int, memory::kTerms> order{};
  for (int i = 0; i < memory::kTerms; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return memory[static_cast<memory::Term>(a)] > memory[static_cast<memory::Term>(b)];
  });
  std::string largest;
  for (size_t i = 0; i < 3; ++i) {
    const memory::Term term = static_cast<memory::Term>(order[i]);
    if (memory[term] <= 0) break;
    largest += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(term),
                           text::human_bytes(text::whole_bytes(memory[term])));
  }
  const auto allowed = static_cast<double>(memory::allowed_bytes(cluster));
  if (memory.peak_bytes <= allowed) {
    const prediction::Range range = prediction::memory_range(job, layout.choice, memory);
    return fmt::format("{} a rank of {} allowed, and up to {} with the usual prediction error ({})",
                       text::human_bytes(text::whole_bytes(memory.peak_bytes)),
                       text::human_bytes(text::whole_bytes(allowed)),
                       text::human_bytes(text::whole_bytes(range.high)), largest);
  }
  return fmt::format("{} a rank, {} allowed ({})",
                     text::human_bytes(text::whole_bytes(memory.peak_bytes)),
                     text::human_bytes(text::whole_bytes(allowed)), largest);
}

}  // namespace smp::search
