#pragma once

namespace smp::links {

// Seconds of `amount` at `rate`; a rate of 0 is unknown and costs nothing.
inline double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

}  // namespace smp::links
