#include "bootstrap/regroup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "bootstrap/letter.h"
#include "bootstrap/packed.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kGreeting = 0x31474552454d4d53;  // "SMMEREG1"
// How long one waits for a door to open, of the whole time: several may stay closed.
constexpr int kParts = 4;
constexpr milliseconds kLookEvery{200};
constexpr milliseconds kKnockFor{50};
constexpr milliseconds kKnockAgain{20};

// Of the job that these ranks make of another one.
std::string id_of(const Participant& old, const std::vector<int>& members) {
  const Mac mac =
      authenticate(old.job_key, fmt::format("{} again {}", old.job_id, fmt::join(members, " ")));
  uint64_t word;
  memcpy(&word, mac.data(), sizeof(word));
  return fmt::format("{}+{:016x}", old.job_id.substr(0, std::min<size_t>(40, old.job_id.find('+'))),
                     word);
}

}  // namespace

comm::Survivors Regroup::run(milliseconds limit) {
  self_.timeout = limit;
  const auto begin = steady_clock::now();
  const Deadline end = begin + limit;
  gone_.clear();
  for (int rank = 0; rank < self_.rank; ++rank) {
    const auto letter = ask(rank, std::min(steady_clock::now() + limit / kParts, end), end);
    if (!letter) continue;
    Unpacker unpacker(*letter);
    if (unpacker.text() == "no")
      throw comm::CommError(comm::CommError::Kind::kTimeout, -1,
                            fmt::format("rank {}: {}", self_.rank, unpacker.text()));
    Place place;
    place.address = unpacker.text();
    place.port = int(unpacker.number());
    std::vector<int> members(unpacker.number());
    for (int& member : members) member = int(unpacker.number());
    return go_on(members, place);
  }
  return let_in(end);
}

// What the rank says that lets others in, if this one does.
std::optional<std::string> Regroup::ask(int rank, Deadline answer_by, Deadline end) {
  Participant self = self_;
  self.deadline = answer_by;
  for (;;) {
    Knock door = knock(rank, answer_by);
    if (door.is_gone) gone_.insert(rank);
    if (!door.socket) return std::nullopt;
    Handshake handshake(self, kGreeting);
    if (handshake.greet(door.socket, rank) && send_letter(door.socket, "here", handshake, ""))
      // It may wait for others to the end.
      if (auto said = receive_letter(door.socket, "who goes on", handshake, end + self_.timeout))
        return said;
    // Hung up: for strangers who came later, or because it has ended.
    if (steady_clock::now() >= answer_by) return std::nullopt;
    std::this_thread::sleep_for(kKnockAgain);
  }
}

// Of the lowest rank. Whoever it has asked in vain is not waited for any more.
comm::Survivors Regroup::let_in(Deadline end) {
  Entrance entrance(self_, kGreeting, "here");
  std::vector<Entrance::Guest> guests;
  std::set<int> missing, absent;
  for (int rank = self_.rank + 1; rank < self_.size; ++rank) missing.insert(rank);
  while (!missing.empty() && steady_clock::now() < end) open_door(entrance, guests, missing, end);
  std::vector<int> members = {self_.rank};
  for (const Entrance::Guest& guest : guests) members.push_back(guest.handshake.guest());
  std::sort(members.begin(), members.end());
  for (int rank = 0; rank < self_.size; ++rank)
    if (gone_.count(rank) == 0 && !std::binary_search(members.begin(), members.end(), rank))
      absent.insert(rank);
  look_for(absent);  // one may have died while it was asked
  Packer letter;
  std::string refusal;
  if (!absent.empty() && 2 * int(members.size()) <= self_.size) {
    refusal = fmt::format(
        "of job '{}' only {} {} came together again within {:g} s, and {} {} may go on without "
        "them: half of a job does not",
        self_.job_id, members.size() == 1 ? "rank" : "ranks", fmt::join(members, ", "),
        std::chrono::duration<double>(self_.timeout).count(), absent.size() == 1 ? "rank" : "ranks",
        fmt::join(absent, ", "));
    letter.add(std::string("no"));
    letter.add(refusal);
  } else {
    letter.add(std::string("yes"));
    letter.add(place().address);
    letter.add(uint64_t(place().port));
    letter.add(uint64_t(members.size()));
    for (const int member : members) letter.add(uint64_t(member));
  }
  // The new rank 0 is met at the same address: nobody shall knock at the old door there.
  if (refusal.empty()) door_ = waiting::Descriptor();
  for (const Entrance::Guest& guest : guests)
    send_letter(guest.socket, "who goes on", guest.handshake, letter.bytes);
  if (!refusal.empty()) self_.fail(comm::CommError::Kind::kTimeout, *absent.begin(), refusal);
  return go_on(members, place());
}

void Regroup::open_door(Entrance& entrance, std::vector<Entrance::Guest>& guests,
                        std::set<int>& missing, Deadline end) {
  auto guest = entrance.next(door_, std::min(end, steady_clock::now() + kLookEvery));
  if (!guest) return look_for(missing);
  if (missing.erase(guest->handshake.guest()) == 1) guests.push_back(std::move(*guest));
}

void Regroup::look_for(std::set<int>& missing) {
  for (auto rank = missing.begin(); rank != missing.end();) {
    const bool is_gone = knock(*rank, steady_clock::now() + kKnockFor).is_gone;
    if (is_gone) gone_.insert(*rank);
    rank = is_gone ? missing.erase(rank) : std::next(rank);
  }
}

comm::Survivors Regroup::go_on(const std::vector<int>& members, const Place& place) {
  door_ = waiting::Descriptor();
  Beginning beginning;
  beginning.rank = int(std::find(members.begin(), members.end(), self_.rank) - members.begin());
  beginning.size = int(members.size());
  beginning.job_id = id_of(self_, members);
  beginning.place = place;
  beginning.limit = self_.timeout;
  return {begin(beginning), members};
}

}  // namespace smp::bootstrap
