#include "smp/comm/net/exchange.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "net/exchange_schedule.h"

namespace smp::net {

// The first message of a hop takes hop_s; later messages of the hop do not wait for it.
double exchange_s(Exchange exchange, int64_t hosts, int64_t bytes, const NetworkCost& cost,
                  bool takes_any_memory) {
  const ExchangeSchedule all(exchange, 0, int(hosts), bytes,
                             step_message_bytes(exchange, bytes, takes_any_memory));
  const auto messages = static_cast<double>(all.size()), hops = static_cast<double>(all.depth());
  const double byte_s = exchange == Exchange::kRing ? cost.next_byte_s : cost.byte_s;
  return hops * cost.hop_s + (messages - hops) * cost.message_s +
         static_cast<double>((hosts - 1) * bytes) * byte_s;
}

Exchange ExchangeRule::choice(int64_t hosts, int64_t bytes) const {
  if (pinned) return *pinned;
  const NetworkCost known = network();
  Exchange best = Exchange::kMesh;
  for (const Exchange other : kExchanges)
    if (exchange_s(other, hosts, bytes, known, takes_any_memory) <
        exchange_s(best, hosts, bytes, known, takes_any_memory))
      best = other;
  return best;
}

// With all digits: ranks with equal texts choose the same exchange.
std::string text_of(const NetworkCost& cost) {
  return fmt::format("{},{},{},{}", cost.hop_s, cost.message_s, cost.byte_s, cost.next_byte_s);
}

NetworkCost network_cost_of(const std::string& text) {
  std::array<double, 4> seconds{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < seconds.size(); ++i) {
    const auto [after, error] = std::from_chars(at, end, seconds[i]);
    const bool is_last = i + 1 == seconds.size();
    if (error != std::errc() || !(seconds[i] >= 0) || !std::isfinite(seconds[i]) ||
        (is_last ? after != end : after == end || *after != ','))
      throw std::invalid_argument(
          fmt::format("'{}': expected four times in seconds, for a hop, a message, a byte and a "
                      "byte to the next host, such as 6e-06,2e-06,8e-10,8e-10",
                      text));
    at = after + 1;
  }
  return {seconds[0], seconds[1], seconds[2], seconds[3]};
}

}  // namespace smp::net
