#include <fmt/format.h>

#include <array>
#include <cmath>

#include "published_run.h"

namespace smp {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Accelerator {
  const char* word;                   // in gpu_type
  double half, fp32, fp8;             // dense peak, TFLOP/s
  double memory_gb, memory_gb_per_s;  // GB as printed on the card
  double peer_gb_per_s;               // to its peers on the host, one direction
  int64_t multiprocessors;
  bool bf16;
};
// NVIDIA datasheets, dense rates; the first whose word gpu_type holds.
constexpr std::array kAccelerators = {
    Accelerator{"gb300", 2500, 80, 5000, 279, 8000, 900, 160, true},
    Accelerator{"gb200", 2500, 80, 5000, 186, 8000, 900, 152, true},
    Accelerator{"gh200", 989, 67, 1979, 96, 4000, 450, 132, true},
    Accelerator{"b300", 2250, 80, 4500, 270, 8000, 900, 160, true},
    Accelerator{"b200", 2250, 80, 4500, 180, 8000, 900, 148, true},
    Accelerator{"h200", 989, 67, 1979, 141, 4800, 450, 132, true},
    Accelerator{"h800", 989, 67, 1979, 80, 3350, 200, 132, true},
    Accelerator{"h100-pcie", 756, 51, 1513, 80, 2000, 64, 114, true},
    Accelerator{"h100", 989, 67, 1979, 80, 3350, 450, 132, true},
    Accelerator{"a800", 312, 19.5, 0, 80, 2039, 200, 108, true},
    Accelerator{"a100-pcie", 312, 19.5, 0, 80, 1935, 32, 108, true},
    Accelerator{"a100", 312, 19.5, 0, 80, 2039, 300, 108, true},
    Accelerator{"v100", 125, 15.7, 0, 32, 900, 150, 80, false},
    Accelerator{"l40", 362, 91, 733, 48, 864, 32, 142, true},
    Accelerator{"a10g", 70, 35, 0, 24, 600, 16, 80, true},
    Accelerator{"t4", 65, 8.1, 0, 16, 300, 8, 40, false},
};

// GB/s of one accelerator to other hosts, from e.g. "8x 200 Gb/s HDR", "400 Gb/s EFA per node".
double inter_host_gb_per_s(const std::string& interconnect, int64_t per_host) {
  if (contains(interconnect, "omni-path")) return 4 * 100.0 / 8 / double(per_host);  // Jean Zay
  const size_t unit = interconnect.rfind("gb/s");
  if (unit == std::string::npos) return 0;
  size_t end = unit;
  while (end > 0 && interconnect[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(interconnect[begin - 1])) ||
                       interconnect[begin - 1] == '.')) {
    --begin;
  }
  const auto rate = leading_number(interconnect.substr(begin, end - begin));
  if (!rate) return 0;
  double links = 1;
  const size_t times = interconnect.rfind("x ", begin);
  if (times != std::string::npos && times + 2 >= begin) {
    size_t digit = times;
    while (digit > 0 && std::isdigit(static_cast<unsigned char>(interconnect[digit - 1]))) --digit;
    links = leading_number(interconnect.substr(digit, times - digit)).value_or(1);
  }
  const bool per_gpu = contains(interconnect, "per gpu");
  return *rate * links / 8 / (per_gpu ? 1.0 : double(per_host));
}

}  // namespace

ClusterSpec cluster_of_run(RunCells& cells, int64_t world) {
  ClusterSpec cluster;
  const std::string type = cells.word("gpu_type");
  const Accelerator* card = nullptr;
  for (const Accelerator& known : kAccelerators) {
    if (contains(type, known.word)) {
      card = &known;
      break;
    }
  }
  if (card == nullptr) {
    if (type.empty()) {
      cells.problem("gpu_type is empty");
    } else {
      cells.not_understood("gpu_type");
    }
    return cluster;
  }
  cluster.name = type;
  cluster.device = DeviceKind::kCuda;
  cluster.accelerator = cells.text("gpu_type");
  cluster.processes_per_host = cells.degree("gpus_per_node").value_or(8);
  if (world < cluster.processes_per_host) cluster.processes_per_host = world;
  cluster.hosts = (world + cluster.processes_per_host - 1) / cluster.processes_per_host;
  const double memory = cells.number("gpu_mem_gb").value_or(card->memory_gb);
  cluster.memory_per_process_bytes = std::llround(memory * kGiB * 0.99);
  cluster.has_bf16 = card->bf16;
  cluster.has_fp16 = true;
  cluster.fp32_flops_per_s = card->fp32 * kTera;
  cluster.half_flops_per_s = card->half * kTera;
  cluster.fp8_flops_per_s = card->fp8 * kTera;
  cluster.matmul_efficiency = 0.8;
  cluster.multiprocessors = card->multiprocessors;
  cluster.kernel_launch_s = 4e-6;
  cluster.memory_bytes_per_s = card->memory_gb_per_s * kGiga;
  cluster.host_memory_bytes = int64_t{1} << 40;
  cluster.host_link_bytes_per_s = 12 * kGiga;
  cluster.intra_host_bytes_per_s = 0.8 * card->peer_gb_per_s * kGiga;
  cluster.intra_host_latency_s = 1e-5;
  const double inter = inter_host_gb_per_s(cells.word("interconnect"), cluster.processes_per_host);
  cluster.inter_host_bytes_per_s = 0.8 * (inter > 0 ? inter : 25) * kGiga;
  cluster.inter_host_latency_s = 3e-5;
  return cluster;
}

}  // namespace smp
