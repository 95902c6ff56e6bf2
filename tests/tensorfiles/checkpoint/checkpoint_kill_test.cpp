#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/checkpoint_support.h"
#include "scratch_folder.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"

// A process saves one checkpoint after the other and is killed (SIGKILL) in the middle of a write,
// sync or rename: whatever it has called whole must load, and `latest` must name it. How often:
// SMP_CHECKPOINT_KILLS, as scripts/sweep-checkpoints sets it.
namespace smp {
namespace {

constexpr int kKills = 20;

// Ends the process after so many bytes; a call that writes none counts as one.
class Killer : public files::FileCalls {
 public:
  explicit Killer(int64_t bytes) : left_(bytes) {}
  ssize_t write_at(int fd, const void* data, size_t bytes, int64_t offset) override {
    if (static_cast<int64_t>(bytes) >= left_) {
      if (left_ > 0) files::FileCalls::write_at(fd, data, static_cast<size_t>(left_), offset);
      ::raise(SIGKILL);
    }
    left_ -= static_cast<int64_t>(bytes);
    return files::FileCalls::write_at(fd, data, bytes, offset);
  }
  int sync(int fd) override {
    count();
    return files::FileCalls::sync(fd);
  }
  int rename(const char* from, const char* to) override {
    count();
    return files::FileCalls::rename(from, to);
  }

 private:
  void count() {
    if (--left_ <= 0) ::raise(SIGKILL);
  }
  int64_t left_;
};

// Says after each commit which step it was, so that the parent knows what must be there.
[[noreturn]] void save_until_killed(const std::string& folder, const Cut& cut, int64_t first,
                                    int64_t bytes, int told) {
  Killer killer(bytes);
  checkpoint::CheckpointStore store(folder, fmt::format("{}", getpid()), killer);
  store.clean();
  for (int64_t step = first;; ++step) {
    save_state(store, make_state(step), cut, step, 2, killer);
    if (::write(told, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

int kills() {
  const char* text = std::getenv("SMP_CHECKPOINT_KILLS");
  return text == nullptr ? kKills : std::atoi(text);
}

bool loads(const std::string& folder, int64_t step, const Cut& cut) {
  for (int64_t rank = 0; rank < cut.ranks(); ++rank) {
    const RankState right = rank_state(make_state(step), cut, rank);
    RankState mine = rank_state(make_state(0), cut, rank);
    checkpoint::CheckpointReader reader(folder);
    if (reader.step() != step) return false;
    for (const safetensors::TensorPiece& piece : mine.pieces) reader.read(piece);
    if (mine.memory != right.memory) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a writer that is killed at any byte leaves the last whole checkpoint") {
  const ScratchFolder folder;
  std::mt19937_64 random(20260821);
  const Cut cuts[] = {{}, {.shard = 3}, {.tensor = 2, .copies = 2}};
  int64_t whole = 0;  // the last step that was called whole
  for (int kill = 0; kill < kills(); ++kill) {
    const Cut& cut = cuts[random() % 3];
    const auto bytes = static_cast<int64_t>(random() % 6'000'000);  // a save takes 1.7 MB
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) save_until_killed(folder.path(), cut, whole + 1, bytes, told[1]);
    ::close(told[1]);
    int64_t step = 0;
    while (::read(told[0], &step, sizeof step) == sizeof step) whole = step;
    ::close(told[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    INFO("kill " << kill << " after " << bytes << " bytes; whole: step " << whole);
    const checkpoint::CheckpointStore store(folder.path());
    if (whole == 0 && store.list().empty()) continue;
    const std::string latest = store.latest();
    // It may have died between the end of the commit and the word about it.
    const int64_t found = *runinfo::step_of_checkpoint(latest);
    REQUIRE((found == whole || found == whole + 1));
    CHECK(loads(folder / latest, found, {.tensor = 3}));
    whole = found;
  }
  CHECK(whole > 0);
}

}  // namespace smp
