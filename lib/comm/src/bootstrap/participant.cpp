#include "bootstrap/participant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace smp::bootstrap {

void Participant::check(int most_ranks, const char* where) const {
  if (size < 1 || size > most_ranks)
    throw std::invalid_argument(
        fmt::format("the job has {} ranks{}: expected 1 to {}", size, where, most_ranks));
  if (rank < 0 || rank >= size)
    throw std::invalid_argument(
        fmt::format("rank {} is out of range: the job has {} ranks", rank, size));
  if (job_id.empty() || job_id.size() > 64)
    throw std::invalid_argument("the job id must have 1 to 64 characters");
  if (job_key.empty()) throw std::invalid_argument("the job key is empty");
}

std::string Participant::name_of_socket(const char* what, int of_rank) const {
  const Mac mac = authenticate(job_key, fmt::format("socket {} {} {}", what, job_id, of_rank));
  return fmt::format("smp/{}/{:02x}", job_id, fmt::join(mac, ""));
}

bool Participant::initiate(handshake::Handshake& handshake, const system::FileDescriptor& socket,
                           int other) const {
  using Reason = handshake::HandshakeError::Reason;
  try {
    return handshake.initiate(socket, other, deadline);
  } catch (const handshake::HandshakeError& error) {
    const auto mismatch = comm::CommError::Kind::kMismatch;
    if (error.reason == Reason::kVersion)
      fail(mismatch, other,
           fmt::format("rank {} of job '{}' runs another version of smp", other, job_id));
    if (error.reason == Reason::kSize)
      fail(mismatch, other,
           fmt::format("this job has {} ranks, but rank {} was told {}", size, other,
                       error.peer_size));
    fail(mismatch, rank, fmt::format("rank {} of job '{}' has another job key", other, job_id));
  }
}

void Participant::fail(comm::CommError::Kind kind, int culprit, const std::string& text) const {
  throw comm::CommError(kind, culprit, fmt::format("rank {}: {}", rank, text));
}

void Participant::lost(int other) const {
  if (is_late()) timed_out({other});
  fail(comm::CommError::Kind::kPeerLost, other,
       fmt::format("rank {} of job '{}' ended during the rendezvous", other, job_id));
}

void Participant::timed_out(const std::vector<int>& missing,
                            const handshake::RejectedPeers& strangers) const {
  fail(comm::CommError::Kind::kTimeout, missing.front(),
       fmt::format("{} {} of job '{}' did not join the rendezvous{} within {:g} s{}",
                   missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), job_id,
                   rendezvous_address, std::chrono::duration<double>(timeout).count(),
                   strangers.text()));
}

void Participant::is_taken() const {
  fail(comm::CommError::Kind::kMismatch, rank,
       fmt::format("another live process is rank {} of job '{}' already", rank, job_id));
}

}  // namespace smp::bootstrap
