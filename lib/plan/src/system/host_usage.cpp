#include "smp/plan/system/host_usage.h"

#include <cmath>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::system {
namespace {

using std::chrono::milliseconds;

// Three digits behind the point are enough, and keep lines short.
double rounded(double value) { return std::round(value * 1000) / 1000; }

RankUsage rank_of(const text::OrderedJson& json) {
  return {json.at("rank"), json.at("processes"), json.at("cpus"), json.at("memory_bytes")};
}

GpuUsage gpu_of(const text::OrderedJson& json) {
  GpuUsage gpu{json.at("gpu"),          json.at("busy_percent"),
               json.at("memory_bytes"), json.at("memory_total_bytes"),
               json.at("power_w"),      {}};
  for (const text::OrderedJson& share : json.at("ranks"))
    gpu.ranks.push_back({share.at("rank"), share.at("memory_bytes")});
  return gpu;
}

}  // namespace

std::string usage_json(const HostUsage& usage) {
  const auto time = std::chrono::duration_cast<milliseconds>(usage.time.time_since_epoch());
  text::OrderedJson json = {{"time_ms", time.count()},
                            {"start", usage.start},
                            {"host", usage.host},
                            {"memory_bytes", usage.memory_bytes},
                            {"memory_total_bytes", usage.memory_total_bytes}};
  if (usage.group_memory_bytes) {
    json["group_memory_bytes"] = *usage.group_memory_bytes;
    json["group_limit_bytes"] = usage.group_limit_bytes;
  }
  json["received_bytes_per_s"] = std::llround(usage.received_bytes_per_s);
  json["sent_bytes_per_s"] = std::llround(usage.sent_bytes_per_s);
  json["ranks"] = text::OrderedJson::array();
  for (const RankUsage& rank : usage.ranks)
    json["ranks"].push_back({{"rank", rank.rank},
                             {"processes", rank.processes},
                             {"cpus", rounded(rank.cpus)},
                             {"memory_bytes", rank.memory_bytes}});
  for (const GpuUsage& gpu : usage.gpus) {
    text::OrderedJson one = {{"gpu", gpu.gpu},
                             {"busy_percent", gpu.busy_percent},
                             {"memory_bytes", gpu.memory_bytes},
                             {"memory_total_bytes", gpu.memory_total_bytes},
                             {"power_w", rounded(gpu.power_w)},
                             {"ranks", text::OrderedJson::array()}};
    for (const GpuShare& share : gpu.ranks)
      one["ranks"].push_back({{"rank", share.rank}, {"memory_bytes", share.memory_bytes}});
    json["gpus"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, text::OrderedJson::error_handler_t::replace);
}

HostUsage parse_usage(std::string_view line) {
  try {
    const text::OrderedJson json = text::OrderedJson::parse(line);
    HostUsage usage;
    usage.time =
        std::chrono::system_clock::time_point(milliseconds(json.at("time_ms").get<int64_t>()));
    json.at("start").get_to(usage.start);
    json.at("host").get_to(usage.host);
    json.at("memory_bytes").get_to(usage.memory_bytes);
    json.at("memory_total_bytes").get_to(usage.memory_total_bytes);
    if (json.contains("group_memory_bytes")) {
      usage.group_memory_bytes = json.at("group_memory_bytes").get<int64_t>();
      json.at("group_limit_bytes").get_to(usage.group_limit_bytes);
    }
    json.at("received_bytes_per_s").get_to(usage.received_bytes_per_s);
    json.at("sent_bytes_per_s").get_to(usage.sent_bytes_per_s);
    for (const text::OrderedJson& rank : json.at("ranks")) usage.ranks.push_back(rank_of(rank));
    if (const auto gpus = json.find("gpus"); gpus != json.end()) {
      for (const text::OrderedJson& gpu : *gpus) usage.gpus.push_back(gpu_of(gpu));
    }
    return usage;
  } catch (const text::OrderedJson::exception& error) {
    throw ConfigError(std::string("not a sample of a host's usage: ") + error.what());
  }
}

}  // namespace smp::system
