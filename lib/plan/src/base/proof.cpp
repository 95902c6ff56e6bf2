#include "smp/plan/base/proof.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace smp {

Nonce make_nonce() {
  Nonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != ssize_t(nonce.size()))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  return nonce;
}

uint64_t siphash(uint64_t k0, uint64_t k1, const std::string& message) {
  uint64_t v0 = k0 ^ 0x736f6d6570736575, v1 = k1 ^ 0x646f72616e646f6d;
  uint64_t v2 = k0 ^ 0x6c7967656e657261, v3 = k1 ^ 0x7465646279746573;
  auto rounds = [&](int n) {
    while (n-- > 0) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  auto absorb = [&](uint64_t word) { v3 ^= word, rounds(2), v0 ^= word; };
  size_t at = 0;
  for (; at + 8 <= message.size(); at += 8) {
    uint64_t word;
    memcpy(&word, message.data() + at, 8);
    absorb(word);
  }
  uint64_t last = uint64_t(message.size()) << 56;
  for (size_t i = 0; at + i < message.size(); ++i)
    last |= uint64_t(uint8_t(message[at + i])) << (8 * i);
  absorb(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

Mac authenticate(const std::string& key, const std::string& message) {
  uint64_t keys[4];
  for (uint64_t i = 0; i < 4; ++i) keys[i] = siphash(i, ~i, key);
  const uint64_t words[2] = {siphash(keys[0], keys[1], message),
                             siphash(keys[2], keys[3], message)};
  Mac mac;
  memcpy(mac.data(), words, sizeof(words));
  return mac;
}

bool equal(const Mac& a, const Mac& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= unsigned(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace smp
