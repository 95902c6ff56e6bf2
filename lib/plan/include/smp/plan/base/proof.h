#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace smp {

using Nonce = std::array<uint8_t, 16>;
using Mac = std::array<uint8_t, 16>;

// How two sides prove to each other that they know a key: ranks that connect, hosts that connect.
// Pure functions, except make_nonce().

Nonce make_nonce();

// A message authentication code of `message` under `key`: two SipHash-2-4 (Aumasson and Bernstein,
// 2012) with keys drawn from the whole of `key`. The code proves knowledge of the key and does not
// reveal it.
Mac authenticate(const std::string& key, const std::string& message);

uint64_t siphash(uint64_t k0, uint64_t k1, const std::string& message);

bool equal(const Mac& a, const Mac& b);  // in constant time

}  // namespace smp
