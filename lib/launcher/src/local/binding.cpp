#include "smp/launcher/local/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "smp/plan/base/errors.h"

namespace smp::local {
namespace {

using Cpus = std::vector<int>;

void append(Cpus& all, const Cpus& more) { all.insert(all.end(), more.begin(), more.end()); }

Cpus cpus_of(const CpuTopology::Node& node) {
  Cpus cpus;
  for (const Cpus& core : node.cores) append(cpus, core);
  return cpus;
}

const CpuTopology::Node* node_numbered(const CpuTopology& topology, int number) {
  for (const CpuTopology::Node& node : topology.nodes) {
    if (node.number == number) return &node;
  }
  return nullptr;
}

// The GPU of a local rank, as an index into gpu_nodes; nothing if its memory node is unknown.
std::optional<int> known_gpu_of(const CpuTopology& topology, int local_rank,
                                const std::vector<int>& gpus) {
  const auto place = static_cast<size_t>(local_rank);
  if (!gpus.empty() && place >= gpus.size()) return std::nullopt;
  const size_t gpu = gpus.empty() ? place : static_cast<size_t>(gpus[place]);
  if (gpu >= topology.gpu_nodes.size()) return std::nullopt;
  if (node_numbered(topology, topology.gpu_nodes[gpu]) == nullptr) return std::nullopt;
  return static_cast<int>(gpu);
}

std::vector<CpuTopology::Card> known_cards(const CpuTopology& topology) {
  std::vector<CpuTopology::Card> cards;
  for (const CpuTopology::Card& card : topology.cards) {
    if (node_numbered(topology, card.node) != nullptr) cards.push_back(card);
  }
  if (cards.empty())
    throw ConfigError(
        "--bind nic: the kernel knows the memory node of no network card of this host: use --bind "
        "numa");
  return cards;
}

// The range [first, end) of `count` items that belongs to `part` of `parts`; at least one item.
std::pair<size_t, size_t> share(size_t count, size_t part, size_t parts) {
  const size_t first = part * count / parts;
  return {first, std::max(first + 1, (part + 1) * count / parts)};
}

int take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) throw ConfigError("the agent sent an unreadable CPU topology");
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Binding parse_binding(std::string_view text) {
  if (text == "none") return Binding::kNone;
  if (text == "numa") return Binding::kNuma;
  if (text == "core") return Binding::kCore;
  if (text == "nic") return Binding::kNic;
  throw ConfigError(fmt::format("--bind '{}': expected numa, core, nic or none", text));
}

std::vector<BoundRank> bindings_of(const CpuTopology& topology, Binding binding, int ranks,
                                   const std::vector<int>& gpus) {
  std::vector<BoundRank> bound(static_cast<size_t>(ranks));
  if (binding == Binding::kNone) return bound;
  std::vector<Cpus> cores;
  for (const CpuTopology::Node& node : topology.nodes)
    cores.insert(cores.end(), node.cores.begin(), node.cores.end());
  if (binding == Binding::kCore && cores.size() < bound.size())
    throw ConfigError(
        fmt::format("--bind core: {} ranks, but {} core{}: start fewer ranks, or use --bind numa",
                    ranks, cores.size(), cores.size() == 1 ? "" : "s"));
  std::vector<CpuTopology::Card> cards;
  if (binding == Binding::kNic) cards = known_cards(topology);
  for (size_t rank = 0; rank < bound.size(); ++rank) {
    Cpus& cpus = bound[rank].cpus;
    if (binding == Binding::kCore) {
      const auto [first, end] = share(cores.size(), rank, bound.size());
      for (size_t core = first; core < end; ++core) append(cpus, cores[core]);
    } else if (binding == Binding::kNic) {
      const CpuTopology::Card& card = cards[rank % cards.size()];
      cpus = cpus_of(*node_numbered(topology, card.node));
      bound[rank].next_to = fmt::format("card {}", card.name);
    } else if (const auto gpu = known_gpu_of(topology, static_cast<int>(rank), gpus)) {
      cpus = cpus_of(*node_numbered(topology, topology.gpu_nodes[static_cast<size_t>(*gpu)]));
      bound[rank].next_to = fmt::format("GPU {}", *gpu);
    } else {
      const auto [first, end] = share(topology.nodes.size(), rank, bound.size());
      for (size_t i = first; i < end; ++i) append(cpus, cpus_of(topology.nodes[i]));
    }
    std::sort(cpus.begin(), cpus.end());
  }
  return bound;
}

int cores_among(const CpuTopology& topology, const Cpus& cpus) {
  int count = 0;
  for (const CpuTopology::Node& node : topology.nodes) {
    for (const Cpus& core : node.cores) {
      count += std::any_of(core.begin(), core.end(), [&](int cpu) {
        return std::binary_search(cpus.begin(), cpus.end(), cpu);
      });
    }
  }
  return count;
}

std::string text_of_cpus(const Cpus& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text.push_back(',');
    text +=
        end - i == 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return text;
}

std::string text_of_topology(const CpuTopology& topology) {
  std::string text;
  for (const CpuTopology::Node& node : topology.nodes) {
    text += fmt::format("{}{}:", text.empty() ? "" : "|", node.number);
    for (size_t core = 0; core < node.cores.size(); ++core)
      text += fmt::format("{}{}", core == 0 ? "" : ";", fmt::join(node.cores[core], ","));
  }
  if (!topology.gpu_nodes.empty())
    text += fmt::format(" gpus {}", fmt::join(topology.gpu_nodes, " "));
  if (!topology.cards.empty()) text += " cards";
  for (const CpuTopology::Card& card : topology.cards)
    text += fmt::format(" {}={}", card.name, card.node);
  return text;
}

CpuTopology parse_topology(std::string_view text) {
  CpuTopology topology;
  constexpr std::string_view kCards = " cards";
  if (const size_t cards = text.find(kCards); cards != text.npos) {
    std::string_view rest = text.substr(cards + kCards.size());
    text = text.substr(0, cards);
    while (take(rest, ' ')) {
      const size_t equals = rest.substr(0, rest.find(' ')).rfind('=');
      if (equals == rest.npos || equals == 0)
        throw ConfigError("the agent sent an unreadable CPU topology");
      const std::string name(rest.substr(0, equals));
      rest.remove_prefix(equals + 1);
      topology.cards.push_back({name, take_number(rest)});
    }
    if (!rest.empty()) throw ConfigError("the agent sent an unreadable CPU topology");
  }
  constexpr std::string_view kGpus = " gpus";
  const size_t gpus = text.find(kGpus);
  std::string_view rest = text.substr(0, gpus);
  do {
    CpuTopology::Node node;
    node.number = take_number(rest);
    if (!take(rest, ':')) throw ConfigError("the agent sent an unreadable CPU topology");
    do {
      Cpus core;
      do {
        core.push_back(take_number(rest));
      } while (take(rest, ','));
      node.cores.push_back(std::move(core));
    } while (take(rest, ';'));
    topology.nodes.push_back(std::move(node));
  } while (take(rest, '|'));
  if (!rest.empty()) throw ConfigError("the agent sent an unreadable CPU topology");
  if (gpus == text.npos) return topology;
  rest = text.substr(gpus + kGpus.size());
  while (take(rest, ' ')) topology.gpu_nodes.push_back(take_number(rest));
  return topology;
}

}  // namespace smp::local
