#include "training/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "smp/plan/base/errors.h"
#include "smp/plan/base/xxh64.h"

namespace smp::training {
namespace {

constexpr size_t kNoteBytes = 512;
constexpr size_t kMostNotes = 8;  // that are shown

// A digest of a rank's values, compared first.
struct Digest {
  int64_t hash = 0, bytes = 0;
  bool operator==(const Digest&) const = default;
};

// The difference of one rank: its host, its value and the reference's value.
struct DifferenceNote {
  std::array<char, kNoteBytes> host{}, here{}, there{};
};

void put_text(std::array<char, kNoteBytes>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), kNoteBytes - 1));
}

// Names and values contain no '\0'; each ends with one.
std::string packed_text(const std::vector<AgreedValue>& held) {
  std::string text;
  for (const AgreedValue& one : held) text.append(one.name + '\0' + one.value + '\0');
  return text;
}

std::map<std::string, std::string> unpacked(const std::string& text) {
  std::map<std::string, std::string> held;
  for (size_t at = 0; at < text.size();) {
    const std::string name = text.c_str() + at;
    at += name.size() + 1;
    const std::string value = text.c_str() + at;
    at += value.size() + 1;
    held[name] = value;
  }
  return held;
}

// Notes the first value in which this rank differs: "a.txt: 18003 bytes", "18000 bytes".
void note_difference(const std::vector<AgreedValue>& held, const std::string& reference,
                     DifferenceNote& note) {
  std::map<std::string, std::string> there = unpacked(reference);
  for (const AgreedValue& one : held) {
    const auto found = there.find(one.name);
    if (found == there.end() || found->second != one.value) {
      put_text(note.here, fmt::format("{}: {}", one.name, one.value));
      put_text(note.there, found == there.end() ? "none" : found->second);
      return;
    }
    there.erase(found);
  }
  if (there.empty()) return;  // only the order differs
  put_text(note.here, fmt::format("{}: none", there.begin()->first));
  put_text(note.there, there.begin()->second);
}

// The first rank of the majority.
size_t most_common(const std::vector<Digest>& digests) {
  size_t best = 0;
  int64_t most = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    const auto same = std::count(digests.begin(), digests.end(), digests[i]);
    if (same > most) {
      most = same;
      best = i;
    }
  }
  return best;
}

std::string on_host(const DifferenceNote& note) {
  return note.host[0] == '\0' ? "" : fmt::format(" on {}", note.host.data());
}

bool is_same(const DifferenceNote& a, const DifferenceNote& b) {
  return a.host == b.host && a.here == b.here && a.there == b.there;
}

// "  ranks 4 to 7 on b: a.txt: 18003 bytes; rank 0 on a: 18000 bytes", a line for each that
// differs.
std::string text_of_notes(const std::vector<DifferenceNote>& notes, size_t reference) {
  std::string text;
  size_t shown = 0, more = 0;
  for (size_t first = 0; first < notes.size();) {
    size_t end = first + 1;
    while (end < notes.size() && is_same(notes[end], notes[first])) ++end;
    const DifferenceNote& note = notes[first];
    if (note.here[0] != '\0' && shown == kMostNotes) {
      more += end - first;
    } else if (note.here[0] != '\0') {
      ++shown;
      text += fmt::format("\n  {}{}: {}; rank {}{}: {}",
                          end - first == 1 ? fmt::format("rank {}", first)
                                           : fmt::format("ranks {} to {}", first, end - 1),
                          on_host(note), note.here.data(), reference, on_host(notes[reference]),
                          note.there.data());
    }
    first = end;
  }
  if (more > 0) text += fmt::format("\n  and {} more rank{}", more, more == 1 ? "" : "s");
  return text;
}

}  // namespace

void add_files(std::vector<AgreedValue>& held, std::string_view what,
               const std::vector<files::FileIdentity>& files) {
  for (const files::FileIdentity& file : files)
    held.push_back({fmt::format("{}, {}", what, file.name), files::text_of(file)});
}

void check_ranks_agree(comm::Communicator& world, const std::string& host,
                       const std::vector<AgreedValue>& held, std::string_view label) {
  const auto ranks = static_cast<size_t>(world.size());
  std::string text = packed_text(held);
  const auto bytes = static_cast<int64_t>(text.size());
  const Digest own{static_cast<int64_t>(xxh64(text.data(), bytes)), bytes};
  std::vector<Digest> digests(ranks);
  world.all_gather(&own, digests.data(), 2, DType::kI64, label)->wait();
  const size_t reference = most_common(digests);
  const bool differs = std::any_of(digests.begin(), digests.end(),
                                   [&](const Digest& one) { return one != digests[reference]; });
  if (!differs) return;

  if (own != digests[reference]) text.resize(static_cast<size_t>(digests[reference].bytes));
  world
      .broadcast(text.data(), digests[reference].bytes, DType::kU8, static_cast<int>(reference),
                 label)
      ->wait();
  DifferenceNote note;
  put_text(note.host, host);
  if (own != digests[reference]) note_difference(held, text, note);
  std::vector<DifferenceNote> notes(ranks);
  world.all_gather(&note, notes.data(), sizeof note, DType::kU8, label)->wait();
  throw ConfigError(fmt::format(
      "the ranks differ in what they would train with, so the result would be wrong:{}\n  copy the "
      "same files to every host, or name files in a file system that all hosts share",
      text_of_notes(notes, reference)));
}

}  // namespace smp::training
