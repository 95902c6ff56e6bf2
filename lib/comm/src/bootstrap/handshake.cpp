#include "bootstrap/handshake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace smp::bootstrap {
namespace {

constexpr size_t kOriginsSaid = 4;

}  // namespace

std::string RejectedPeers::text() const {
  if (by_origin_.empty()) return "";
  int all = 0;
  std::vector<std::string> origins;
  for (const auto& [origin, count] : by_origin_) {
    all += count;
    if (origins.size() == kOriginsSaid) continue;
    origins.push_back(fmt::format("{} from {}", count, origin));
  }
  const size_t unsaid = by_origin_.size() - origins.size();
  return fmt::format("; {} {} rejected ({}{})", all,
                     all == 1 ? "connection was" : "connections were", fmt::join(origins, ", "),
                     unsaid == 0 ? "" : fmt::format(", the rest from {} more", unsaid));
}

void Participant::check(int most_ranks, const char* where) const {
  if (size < 1 || size > most_ranks)
    throw std::invalid_argument(
        fmt::format("a job of {} ranks{}: 1 to {} are possible", size, where, most_ranks));
  if (rank < 0 || rank >= size)
    throw std::invalid_argument(fmt::format("no rank {} in a job of {} ranks", rank, size));
  if (job_id.empty() || job_id.size() > 64)
    throw std::invalid_argument("the job id must have 1 to 64 characters");
  if (job_key.empty()) throw std::invalid_argument("the job key is empty");
}

std::string Participant::name_of_socket(const char* what, int of_rank) const {
  const Mac mac = authenticate(job_key, fmt::format("socket {} {} {}", what, job_id, of_rank));
  return fmt::format("smp/{}/{:02x}", job_id, fmt::join(mac, ""));
}

void Participant::fail(comm::CommError::Kind kind, int culprit, const std::string& text) const {
  throw comm::CommError(kind, culprit, fmt::format("rank {}: {}", rank, text));
}

void Participant::lost(int other) const {
  if (is_late()) timed_out({other});
  fail(comm::CommError::Kind::kPeerLost, other,
       fmt::format("rank {} of job '{}' ended during the rendezvous", other, job_id));
}

void Participant::timed_out(const std::vector<int>& missing, const RejectedPeers& strangers) const {
  fail(comm::CommError::Kind::kTimeout, missing.front(),
       fmt::format("{} {} of job '{}' did not come{} within {:g} s{}",
                   missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "), job_id,
                   rendezvous_address, std::chrono::duration<double>(timeout).count(),
                   strangers.text()));
}

void Participant::is_taken() const {
  fail(comm::CommError::Kind::kMismatch, rank,
       fmt::format("another live process is rank {} of job '{}' already", rank, job_id));
}

Handshake::Handshake(const Participant& self, uint64_t protocol)
    : self_(&self), protocol_(protocol) {}

bool Handshake::initiate(const system::FileDescriptor& socket, int other) {
  hello_ = {protocol_, self_->rank, self_->size, make_nonce()};
  if (!send_all(socket, &hello_, sizeof(hello_)) ||
      !receive_all(socket, &answer_, sizeof(answer_), self_->deadline))
    return false;
  if (answer_.protocol != protocol_ || answer_.rank != other)
    self_->fail(
        comm::CommError::Kind::kMismatch, other,
        fmt::format("rank {} of job '{}' runs another version of smp", other, self_->job_id));
  if (answer_.size != self_->size)
    self_->fail(comm::CommError::Kind::kMismatch, other,
                fmt::format("this job has {} ranks, but rank {} was told {}", self_->size, other,
                            answer_.size));
  if (!equal(answer_.proof, proof("answer")))
    self_->fail(comm::CommError::Kind::kMismatch, self_->rank,
                fmt::format("rank {} of job '{}' has another job key", other, self_->job_id));
  return true;
}

bool Handshake::respond(const system::FileDescriptor& socket, Deadline deadline) {
  if (!receive_all(socket, &hello_, sizeof(hello_), deadline)) return false;
  answer_ = {protocol_, self_->rank, self_->size, make_nonce(), {}};
  // Another version is told this one's greeting, so that it can say what is the matter.
  const bool known = hello_.protocol == protocol_;
  if (known) answer_.proof = proof("answer");
  return send_all(socket, &answer_, sizeof(answer_)) && known;
}

Mac Handshake::proof(const char* what, const std::string& bytes) const {
  std::string message = fmt::format("{} {} {}/{} {}/{} ", what, self_->job_id, hello_.rank,
                                    hello_.size, answer_.rank, answer_.size);
  message.append(hello_.nonce.begin(), hello_.nonce.end());
  message.append(answer_.nonce.begin(), answer_.nonce.end());
  return authenticate(self_->job_key, message + bytes);
}

}  // namespace smp::bootstrap
