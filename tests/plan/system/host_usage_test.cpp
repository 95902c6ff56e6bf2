#include "smp/plan/system/host_usage.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"

using namespace smp;
using namespace smp::system;

TEST_CASE("a sample of a host goes through its line") {
  HostUsage usage;
  usage.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'262'400'123));
  usage.start = 2;
  usage.host = "node\"1";
  usage.memory_bytes = 7;
  usage.memory_total_bytes = 1LL << 40;
  usage.received_bytes_per_s = 12;
  usage.sent_bytes_per_s = 1e9;
  usage.ranks = {{8, 3, 1.125, 5'000'000'000}, {9, 1, 0, 4096}};
  CHECK(parse_usage(usage_json(usage)) == usage);
  CHECK(usage_json(usage).find('\n') == std::string::npos);

  usage.group_memory_bytes = 99;
  usage.group_limit_bytes = 100;
  usage.gpus = {{0, 97, 80'000'000'000, 141'000'000'000, 612.5, {{8, 79'000'000'000}}},
                {1, 0, 0, 141'000'000'000, 70, {}}};
  CHECK(parse_usage(usage_json(usage)) == usage);
}

TEST_CASE("a line that is no sample is refused") {
  CHECK(error_of([] {
          parse_usage(R"({"time_ms": 1, "start": 1})");
        }).find("not a sample of a host's usage: ") == 0);
  CHECK(error_of([] {
          parse_usage(R"({"time_ms": 17)");
        }).find("not a sample of a host's usage: ") == 0);
}
