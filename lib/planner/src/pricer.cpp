#include "pricer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "smp/planner/memory_model.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

double tokens_of(const JobSpec& job, const LayoutChoice& choice) {
  return static_cast<double>(choice.data()) * choice.micro_batch * choice.microbatches *
         static_cast<double>(job.training.sequence_length);
}

}  // namespace

Pricer::Pricer(const JobSpec& job) : job_(job), costs_(job), memory_(job), time_(job) {}

double host_bytes_needed(const JobSpec& job, const MemoryEstimate& memory) {
  return memory.host_bytes * static_cast<double>(job.cluster.processes_per_host);
}

Fit Pricer::fit(const LayoutChoice& choice, const MemoryEstimate& memory) const {
  const ClusterSpec& cluster = job_.cluster;
  if (cluster.host_memory_bytes > 0 && memory.host_bytes > 0 &&
      host_bytes_needed(job_, memory) > static_cast<double>(cluster.host_memory_bytes)) {
    return Fit::kNo;
  }
  if (!refused_.empty() && std::find(refused_.begin(), refused_.end(), choice) != refused_.end()) {
    return Fit::kNo;
  }
  if (raised_ == 1) return fit_of(job_, choice, memory);
  MemoryEstimate raised = memory;
  raised.peak_bytes *= raised_;
  raised.allocated_bytes *= raised_;
  raised.reserved_bytes *= raised_;
  return fit_of(job_, choice, raised);
}

void Pricer::refuse(const LayoutChoice& choice, double ratio) {
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

double Pricer::per_token(const LayoutChoice& choice, double step_s) const {
  return step_s / tokens_of(job_, choice);
}

Candidate Pricer::price(const LayoutChoice& choice) { return with_memory(price_time(choice)); }

Candidate Pricer::price_time(const LayoutChoice& choice) {
  ++effort_.bounds;
  const LayerCosts& costs = costs_.of(choice);
  const TimeEstimate time = time_.step(choice, costs.bytes, costs.seconds);
  const double least_s = time.step_s - time[TimePart::kBubble] + time.least_bubble_s;
  return {choice,
          time.step_s,
          per_token(choice, time.step_s),
          std::numeric_limits<double>::infinity(),
          Fit::kNo,
          per_token(choice, least_s)};
}

Candidate Pricer::with_memory(const Candidate& timed) {
  --effort_.bounds;
  ++effort_.evaluations;
  const MemoryEstimate memory = memory_.fullest(timed.choice, costs_.of(timed.choice).bytes);
  Candidate candidate = timed;
  candidate.peak_bytes = memory.peak_bytes;
  candidate.fit = noted(fit(timed.choice, memory));
  return candidate;
}

Candidate Pricer::price_memory(const LayoutChoice& choice) {
  ++effort_.bounds;
  const MemoryEstimate memory = memory_.fullest(choice, costs_.of(choice).bytes);
  return {choice, 0, 0, memory.peak_bytes, noted(fit(choice, memory))};
}

double Pricer::least_step_s(const LayoutChoice& choice) {
  ++effort_.bounds;
  const LayerCosts& costs = costs_.of(choice);
  const TimeEstimate& time = time_.pipeline(choice, costs.bytes, costs.seconds).time;
  double least = time.least_bubble_s;
  for (const TimePart part : {TimePart::kMatmul, TimePart::kMemoryBound, TimePart::kLaunch,
                              TimePart::kTensor, TimePart::kContext, TimePart::kExpert}) {
    least += time[part];
  }
  return least;
}

PricedLayout Pricer::detail(const LayoutChoice& choice) {
  const LayerCosts& costs = costs_.of(choice);
  PricedLayout layout;
  layout.choice = choice;
  layout.memory = estimate_memory(job_, choice, costs.bytes);
  layout.time = estimate_time(job_, choice, costs.bytes, costs.seconds);
  layout.fit = fit(choice, layout.memory);
  layout.seconds_per_token = per_token(choice, layout.time.step_s);
  const ClusterSpec& cluster = job_.cluster;
  layout.cost_per_token = layout.seconds_per_token / 3600 * cluster.price_per_host_hour *
                          static_cast<double>(cluster.hosts);
  return layout;
}

std::string memory_problem(const JobSpec& job, const PricedLayout& layout) {
  const ClusterSpec& cluster = job.cluster;
  const MemoryEstimate& memory = layout.memory;
  const double host = host_bytes_needed(job, memory);
  if (cluster.host_memory_bytes > 0 && host > static_cast<double>(cluster.host_memory_bytes)) {
    return fmt::format("{} of host memory, a host has {}", human_bytes(whole_bytes(host)),
                       human_bytes(cluster.host_memory_bytes));
  }
  std::array<int, kTerms> order{};
  for (int i = 0; i < kTerms; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return memory[static_cast<Term>(a)] > memory[static_cast<Term>(b)];
  });
  std::string largest;
  for (size_t i = 0; i < 3; ++i) {
    const Term term = static_cast<Term>(order[i]);
    if (memory[term] <= 0) break;
    largest += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(term),
                           human_bytes(whole_bytes(memory[term])));
  }
  const auto allowed = static_cast<double>(allowed_bytes(cluster));
  if (memory.peak_bytes <= allowed) {
    const Range range = memory_range(job, layout.choice, memory);
    return fmt::format(
        "{} a rank of {} allowed, and up to {} by what such predictions were off ({})",
        human_bytes(whole_bytes(memory.peak_bytes)), human_bytes(whole_bytes(allowed)),
        human_bytes(whole_bytes(range.high)), largest);
  }
  return fmt::format("{} a rank, {} allowed ({})", human_bytes(whole_bytes(memory.peak_bytes)),
                     human_bytes(whole_bytes(allowed)), largest);
}

}  // namespace smp
