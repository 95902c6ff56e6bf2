#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>

#include "published/published_run.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"

namespace smp::published {
namespace {

constexpr double kGiga = 1e9;
constexpr double kGiB = 1024.0 * 1024 * 1024;
// What NCCL reaches of a network's rate: as in configs/clusters.
constexpr double kReached = 0.88;
constexpr double kMostGib = 1 << 16;  // of one accelerator
// Capacities nearer than this to the catalog's are the same card.
constexpr double kSameCard = 0.06;

struct Card {
  const char* word;          // in gpu_type
  const char* interconnect;  // word of the interconnect; empty = any
  const char* cluster;
};
// The first line that fits. gpu_mem_gb, gpus_per_node and a rate in the interconnect replace what
// the cluster file says.
constexpr std::array kCards = {
    Card{"gb200", "", "gb200"},
    Card{"gb300", "", "gb300"},
    Card{"b200", "", "dgx-b200"},
    Card{"b300", "", "dgx-b300"},
    Card{"h200", "p5en", "p5en.48xlarge"},
    Card{"h200", "efa", "p5en.48xlarge"},
    Card{"h200", "", "dgx-h200"},
    Card{"h800", "", "h800-8x"},
    Card{"h100-pcie", "", "h100-pcie-8x"},
    Card{"h100 pcie", "", "h100-pcie-8x"},
    Card{"mi300x", "", "mi300x-8x"},
    Card{"h100", "p5", "p5.48xlarge"},
    Card{"h100", "efa", "p5.48xlarge"},
    Card{"h100", "", "dgx-h100"},
    Card{"a800", "", "a800-8x"},
    Card{"a100", "p4de", "p4de.24xlarge"},
    Card{"a100", "p4d", "p4d.24xlarge"},
    Card{"a100", "jean zay", "jean-zay-a100-8x"},
    Card{"a100", "omni-path", "jean-zay-a100-8x"},
    Card{"a100-pcie", "", "a100-pcie-8x"},
    Card{"a100 pcie", "", "a100-pcie-8x"},
    Card{"a100", "", "dgx-a100-80gb"},
    Card{"v100", "jean zay", "jean-zay-v100-4x"},
    Card{"v100", "omni-path", "jean-zay-v100-4x"},
    Card{"v100", "", "p3dn.24xlarge"},
    Card{"l40", "", "l40s-8x"},
    Card{"4090", "", "rtx4090-8x"},
};

// GB/s of one accelerator to other hosts that the interconnect's rate gives ("8x 200 Gb/s HDR",
// "400 Gb/s EFA per node", "inter_node 800 Gb/s"); nothing when it has none. GB/s, with a capital
// B, is a rate between the accelerators of a host.
std::optional<double> inter_host_gb_per_s(const std::string& interconnect, int64_t per_host) {
  size_t unit = std::string::npos;
  for (const char* word : {"Gb/s", "Gbps", "Gbit/s"})
    unit = std::min(unit, interconnect.find(word));
  if (unit == std::string::npos) return std::nullopt;
  const auto digit_at = [&](size_t i) {
    return std::isdigit(static_cast<unsigned char>(interconnect[i])) || interconnect[i] == '.';
  };
  const auto skip_blanks = [&](size_t end) {
    while (end > 0 && interconnect[end - 1] == ' ') --end;
    return end;
  };
  const auto number_before = [&](size_t& end) {
    size_t begin = end = skip_blanks(end);
    while (begin > 0 && digit_at(begin - 1)) --begin;
    const auto value = leading_number(std::string_view(interconnect).substr(begin, end - begin));
    end = begin;
    return value;
  };
  size_t end = unit;
  const auto rate = number_before(end);
  if (!rate) return std::nullopt;
  double links = 1;
  end = skip_blanks(end);
  if (end > 0 && (interconnect[end - 1] == 'x' || interconnect[end - 1] == 'X')) {
    --end;
    links = number_before(end).value_or(1);
  }
  const std::string words = lower_case(interconnect);
  const bool per_gpu = contains(words, "per gpu") || contains(words, "/gpu");
  return *rate * links / 8 / (per_gpu ? 1.0 : double(per_host));
}

const Card* card_of(const std::string& type, const std::string& interconnect) {
  for (const Card& card : kCards) {
    if (contains(type, card.word) && contains(interconnect, card.interconnect)) return &card;
  }
  return nullptr;
}

}  // namespace

const ClusterSpec& KnownClusters::named(const std::string& name) {
  const auto known = specs_.find(name);
  if (known != specs_.end()) return known->second;
  const jobfile::JobSource any_model{
      "score",
      "model: {family: gpt2, num_layers: 1, hidden_size: 64, num_heads: 1, "
      "vocab_size: 256, max_positions: 8}\ntraining: {sequence_length: 8}\n"};
  const JobSpec job = jobfile::read_job({any_model, jobfile::cluster_source(name)});
  return specs_.emplace(name, job.cluster).first->second;
}

ClusterSpec cluster_of_run(RunCells& cells, KnownClusters& clusters, int64_t world) {
  const std::string type = cells.word("gpu_type");
  const std::string interconnect = cells.word("interconnect");
  const Card* card = card_of(type, interconnect);
  if (card == nullptr) {
    if (type.empty()) {
      cells.problem("gpu_type is empty");
    } else {
      cells.not_understood("gpu_type");
    }
    return {};
  }
  const bool small_card = cells.number("gpu_mem_gb").value_or(80) <= 40;
  const bool of_40_gb = small_card && std::string_view(card->cluster) == "dgx-a100-80gb";
  ClusterSpec cluster = clusters.named(of_40_gb ? "p4d.24xlarge" : card->cluster);
  cluster.accelerator = cells.text("gpu_type");
  const int64_t usual = cluster.processes_per_host;
  cluster.processes_per_host = cells.degree("gpus_per_node").value_or(usual);
  const auto memory = cells.number("gpu_mem_gb");
  if (memory && !(*memory >= 1 && *memory <= kMostGib)) {
    cells.problem(fmt::format("gpu_mem_gb is {}: no accelerator has that memory", *memory));
  } else if (memory) {
    const double known = double(cluster.memory_per_process_bytes) / kGiB;
    if (std::abs(*memory / known - 1) > kSameCard) {
      cluster.memory_per_process_bytes = std::llround(*memory * kGiB * known / std::ceil(known));
    }
  }
  const auto rate = inter_host_gb_per_s(cells.text("interconnect"), cluster.processes_per_host);
  if (rate && *card->interconnect == '\0') {
    cluster.inter_host_bytes_per_s = kReached * *rate * kGiga;
    cluster.inter_host_points.clear();
  }
  cluster.processes_per_host = std::min(cluster.processes_per_host, world);
  cluster.hosts = (world + cluster.processes_per_host - 1) / cluster.processes_per_host;
  return cluster;
}

}  // namespace smp::published
