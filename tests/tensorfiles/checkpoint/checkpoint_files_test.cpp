#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "files_and_errors.h"
#include "runtime/checkpoint_support.h"
#include "scratch_folder.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/checkpoint/checkpoint_writer.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

// Every rank of a cut loads its pieces, into memory that held something else.
void load_state(const std::string& folder, const std::vector<StateTensor>& expected,
                const Cut& cut) {
  for (int64_t rank = 0; rank < cut.ranks(); ++rank) {
    const RankState right = rank_state(expected, cut, rank);
    RankState mine = rank_state(make_state(999), cut, rank);
    checkpoint::CheckpointReader reader(folder);
    for (const safetensors::TensorPiece& piece : mine.pieces) reader.read(piece);
    CHECK(mine.memory == right.memory);
  }
}

// A disk that is full after so many bytes.
class FullDisk : public files::FileCalls {
 public:
  explicit FullDisk(int64_t room) : room_(room) {}
  ssize_t write_at(int fd, const void* data, size_t bytes, int64_t offset) override {
    if (room_ == 0) {
      errno = ENOSPC;
      return -1;
    }
    const ssize_t wrote =
        files::FileCalls::write_at(fd, data, std::min(bytes, static_cast<size_t>(room_)), offset);
    room_ -= wrote;
    return wrote;
  }

 private:
  int64_t room_;
};

struct Saved {
  ScratchFolder folder;
  checkpoint::CheckpointStore store{folder / "checkpoints"};

  void save(int64_t step, const Cut& cut = {.tensor = 2}) {
    save_state(store, make_state(step), cut, step, 2, files::system_file_calls());
  }
  std::string path(const std::string& name) const { return store.folder() + "/" + name; }
};

}  // namespace

TEST_CASE("a flat range of a box is part of a row, whole rows, part of a row") {
  safetensors::TensorPiece piece{"w", {10, 8}, DType::kF32, {2, 7, 1, 5}, 2, 15, nullptr};
  const std::vector<safetensors::Rectangle> found = safetensors::rectangles_of(piece);
  REQUIRE(found.size() == 3);
  CHECK(found[0].box == model::Box{2, 3, 3, 5});
  CHECK(found[1].box == model::Box{3, 5, 1, 5});
  CHECK(found[2].box == model::Box{5, 6, 1, 4});
  CHECK(found[1].offset == 2);
  CHECK(found[2].offset == 10);
  piece.begin = 5, piece.end = 6;  // inside one row
  CHECK(safetensors::rectangles_of(piece).size() == 1);
  piece.end = 5;
  CHECK(safetensors::rectangles_of(piece).empty());
}

TEST_CASE("copies share the writing: each element once, none more than its part") {
  const std::vector<StateTensor> state = make_state(0);
  const RankState whole = rank_state(state, {}, 0);
  int64_t all = 0;
  for (const safetensors::TensorPiece& piece : whole.pieces) all += piece.size();
  for (const int64_t copies : {1, 2, 3, 7}) {
    int64_t sum = 0;
    for (int64_t copy = 0; copy < copies; ++copy) {
      int64_t share = 0;
      for (const safetensors::TensorPiece& piece :
           safetensors::share_of(whole.pieces, copies, copy))
        share += piece.size();
      CHECK(share <= (all + copies - 1) / copies);
      sum += share;
    }
    CHECK(sum == all);
  }
}

TEST_CASE("what one cut saves, every other cut loads") {
  const std::vector<Cut> cuts = {{},
                                 {.tensor = 3},
                                 {.shard = 5},
                                 {.copies = 4},
                                 {.tensor = 2, .shard = 3},
                                 {.tensor = 2, .shard = 2, .copies = 2}};
  const std::vector<StateTensor> state = make_state(5);
  for (const Cut& from : cuts) {
    const ScratchFolder folder;
    checkpoint::CheckpointStore store(folder.path());
    save_state(store, state, from, 10, 1, files::system_file_calls());
    CHECK(store.latest() == "step-00000010");
    for (const Cut& to : cuts) load_state(folder / "step-00000010", state, to);
  }
}

TEST_CASE("a rank reads the bytes it needs, rounded to blocks") {
  Saved saved;
  saved.save(1, {.shard = 4});
  const std::vector<StateTensor> state = make_state(1);
  checkpoint::CheckpointReader reader(saved.path("step-00000001"));
  RankState mine = rank_state(state, {.shard = 4}, 2);
  int64_t bytes = 0;
  for (const safetensors::TensorPiece& piece : mine.pieces) {
    reader.read(piece);
    bytes += piece.bytes();
  }
  CHECK(reader.bytes_read() == bytes);  // its own cut: nothing else
}

TEST_CASE("a shard is a safetensors file with the offsets that PyTorch's reader wants") {
  Saved saved;
  saved.save(3, {.shard = 3});
  // Rank 1's flat third of a 7 x 5 matrix is elements 12 to 23: part of a row, a row, part of one.
  const std::string first = "shard-00002-model-00001-of-00003.safetensors";
  const safetensors::SafetensorsReader reader(saved.path("step-00000003/" + first));
  CHECK(reader.find("layers.0.weight")->shape == std::vector<int64_t>{1, 3});
  CHECK(reader.find("norm")->shape == std::vector<int64_t>{4});
  CHECK(reader.header().metadata.at("DCP_VERSION") == "1.0");
  CHECK(reader.header().metadata.at("format") == "pt");
  const auto info = text::Json::parse(reader.header().metadata.at("DCP_SHARDING_INFO"));
  CHECK(info["layers.0.weight"]["saved_offsets"] == std::vector<int64_t>{2, 2});
  CHECK(info["norm"]["saved_offsets"] == std::vector<int64_t>{5});
  CHECK(fs::exists(saved.path("step-00000003/shard-00002-model-00003-of-00003.safetensors")));
}

TEST_CASE("the newest n stay, and latest names the last") {
  Saved saved;
  for (const int64_t step : {1, 2, 3}) saved.save(step);
  CHECK(saved.store.list() == std::vector<std::string>{"step-00000002", "step-00000003"});
  CHECK(saved.store.latest() == "step-00000003");
  CHECK(saved.store.before("step-00000003") == "step-00000002");
  CHECK(saved.store.of_step(2) == "step-00000002");
  CHECK(error_of([&] { saved.store.of_step(7); }) ==
        saved.store.folder() +
            ": no checkpoint of step 7; the folder has checkpoints of steps [2, 3]");
  CHECK(!fs::exists(saved.path("step-00000001")));
}

TEST_CASE("a step that is saved again gets a folder of its own") {
  Saved saved;
  saved.save(2);
  saved.save(2);
  CHECK(saved.store.latest() == "step-00000002-2");
  CHECK(saved.store.of_step(2) == "step-00000002-2");
}

TEST_CASE("without a checkpoint there is nothing to go on from") {
  const ScratchFolder folder;
  const checkpoint::CheckpointStore store(folder / "none");
  CHECK(error_of([&] { store.latest(); }) == folder / "none: no checkpoint in this folder");
}

TEST_CASE("latest that names no whole checkpoint is refused, with the one of the highest step") {
  Saved saved;
  saved.save(4);
  const std::string latest = saved.path("latest");
  const std::string help = "; resume from the newest complete checkpoint with --resume=4";
  std::ofstream(latest) << "step-00000009\n";
  CHECK(error_of([&] { saved.store.latest(); }) ==
        latest + ": names 'step-00000009', which is not a complete checkpoint" + help);
  const std::string unreadable = latest + ": cannot be read, or does not name a checkpoint" + help;
  std::ofstream(latest) << "";
  CHECK(error_of([&] { saved.store.latest(); }) == unreadable);
  fs::remove(latest);
  SUBCASE("a link to the folder, as other programs make it") {
    fs::create_symlink("step-00000004", latest);
    CHECK(error_of([&] { saved.store.latest(); }) == unreadable);
  }
  SUBCASE("a FIFO, which is not waited for") {
    REQUIRE(::mkfifo(latest.c_str(), 0600) == 0);
    CHECK(error_of([&] { saved.store.latest(); }) == unreadable);
  }
  SUBCASE("a link that leads nowhere") {
    fs::create_symlink("nowhere", latest);
    CHECK(error_of([&] { saved.store.latest(); }) == unreadable);
  }
  SUBCASE("a link to a file that names one") {
    std::ofstream(saved.path("name")) << "step-00000004\n";
    fs::create_symlink("name", latest);
    CHECK(saved.store.latest() == "step-00000004");
  }
  SUBCASE("a folder step-<n> without a manifest") {
    std::ofstream(latest) << "step-00000004\n";
    fs::remove(saved.path("step-00000004/manifest.json"));
    CHECK(error_of([&] { saved.store.latest(); }) ==
          latest +
              ": names 'step-00000004', which is not a complete checkpoint; the folder has no "
              "complete checkpoint");
  }
}

TEST_CASE("killed between the rename of a checkpoint and `latest`: the whole one is gone on from") {
  Saved saved;
  saved.save(3);
  saved.save(12);
  fs::remove(saved.path("latest"));
  CHECK(saved.store.latest() == "step-00000012");
}

TEST_CASE("checkpoints are ordered by their steps, whatever the clocks said") {
  Saved saved;
  saved.save(1);
  saved.save(2);
  const auto made = fs::last_write_time(saved.path("step-00000002/manifest.json"));
  // Copied, or written by a host whose clock is ahead.
  fs::last_write_time(saved.path("step-00000001/manifest.json"), made + std::chrono::hours(5));
  saved.save(3);
  CHECK(saved.store.list() == std::vector<std::string>{"step-00000002", "step-00000003"});
  CHECK(saved.store.before("step-00000003") == "step-00000002");
  // Who goes back to step 2 keeps what is saved then, and the highest.
  fs::last_write_time(saved.path("step-00000003/manifest.json"), made - std::chrono::hours(5));
  save_state(saved.store, make_state(2), {}, 2, 1, files::system_file_calls());
  CHECK(saved.store.list() == std::vector<std::string>{"step-00000002-2", "step-00000003"});
  CHECK(saved.store.latest() == "step-00000002-2");
}

TEST_CASE("what a killed save has written is in no later checkpoint of that step") {
  const ScratchFolder folder;
  const auto write = [&](checkpoint::CheckpointStore& store, int64_t rank, const Cut& cut) {
    const RankState mine = rank_state(make_state(1), cut, rank);
    checkpoint::RankShards shards(rank, mine.pieces);
    shards.copy();
    shards.write(store.begin(1), 1, files::system_file_calls());
  };
  checkpoint::CheckpointStore killed(folder.path(), "first");
  write(killed, 1, {.tensor = 2});
  checkpoint::CheckpointStore store(folder.path(), "second");
  save_state(store, make_state(1), {}, 1, 1, files::system_file_calls());
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder / "step-00000001"))
    files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  CHECK(files ==
        std::vector<std::string>{"manifest.json", "shard-00001-model-00001-of-00001.safetensors"});
  store.clean();
  CHECK(!fs::exists(folder / "step-00000001.first.partial"));
}

TEST_CASE("a file that no rank of the save has written keeps a checkpoint from being whole") {
  Saved saved;
  const std::string stranger =
      saved.store.begin(1) + "/shard-00009-model-00001-of-00001.safetensors";
  std::ofstream(stranger) << "x";
  CHECK(error_of([&] { saved.save(1); }) ==
        stranger + ": unexpected file: no rank wrote it in this save");
  CHECK(saved.store.list().empty());
}

TEST_CASE("a shard of another run that was copied into a checkpoint is named") {
  Saved saved;
  saved.save(1);
  const std::string stranger =
      saved.path("step-00000001/shard-00009-model-00001-of-00001.safetensors");
  std::ofstream(stranger) << "x";
  std::ofstream(saved.path("step-00000001/notes.txt")) << "no reader of tensors takes this";
  CHECK(error_of([&] { checkpoint::CheckpointReader(saved.path("step-00000001")); }) ==
        stranger +
            ": the file is not in the checkpoint's manifest, so another save wrote it: remove it "
            "from the folder");
}

TEST_CASE("a checkpoint that does not say its job is refused") {
  Saved saved;
  saved.save(1);
  const std::string path = saved.path("step-00000001/manifest.json");
  std::string text = text_of(path);
  text.replace(text.find("\"format\":2"), 10, "\"format\":1");
  std::ofstream(path) << text;
  CHECK(error_of([&] { checkpoint::CheckpointReader(saved.path("step-00000001")); }) ==
        path +
            ": format 1 does not record its job, so this version, which reads format 2, cannot "
            "check that training would continue unchanged: finish the run with the version of smp "
            "that started it");
}

TEST_CASE("damage is named with file and tensor, and the one before loads") {
  Saved saved;
  saved.save(1);
  saved.save(2);
  const std::string shard =
      saved.path("step-00000002/shard-00002-model-00001-of-00001.safetensors");
  const std::string text = text_of(shard);
  const auto load = [&](int64_t step) {
    load_state(saved.path(fmt::format("step-{:08}", step)), make_state(step), {.tensor = 3});
  };
  const auto write = [&](const std::string& bytes) {
    std::ofstream(shard, std::ios::binary) << bytes;
  };
  SUBCASE("a changed byte") {
    std::string bytes = text;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(bytes);
    CHECK(error_of([&] { load(2); }) ==
          shard +
              ": 'layers.0.weight' [0:7, 3:5], bytes 0 to 56 of its data do not match their hash: "
              "the file was changed or damaged after it was written");
  }
  SUBCASE("a torn file") {
    write(text.substr(0, text.size() - 7));
    CHECK(error_of([&] { load(2); }) ==
          fmt::format("{}: the tensors take 840056 bytes, but the file holds 840049; it holds "
                      "'layers.0.weight' [0:7, 3:5]",
                      shard));
  }
  SUBCASE("a missing file") {
    fs::remove(shard);
    CHECK(error_of([&] { load(2); }) ==
          shard + ": the file is missing; it holds 'layers.0.weight' [0:7, 3:5]");
  }
  SUBCASE("an edited manifest") {
    const std::string path = saved.path("step-00000002/manifest.json");
    std::string manifest = text_of(path);
    manifest.replace(manifest.find("\"step\":2"), 8, "\"step\":3");
    std::ofstream(path) << manifest;
    CHECK(error_of([&] { load(2); }) == path +
                                            ": the manifest does not match its own hash: the file "
                                            "was changed after it was written");
  }
  load(1);
  CHECK(saved.store.before("step-00000002") == "step-00000001");
}

TEST_CASE("another model's checkpoint is refused with both shapes") {
  Saved saved;
  saved.save(1);
  checkpoint::CheckpointReader reader(saved.path("step-00000001"));
  float value = 0;
  safetensors::TensorPiece piece{
      "norm", {14}, DType::kF32, {0, 1, 0, 1}, 0, 1, reinterpret_cast<std::byte*>(&value)};
  CHECK(
      error_of([&] { reader.read(piece); }) ==
      saved.path(
          "step-00000001: tensor 'norm' is F32 [13] in the checkpoint, but F32 [14] in this job"));
  piece.name = "other";
  CHECK(error_of([&] { reader.read(piece); }) ==
        saved.path("step-00000001: the checkpoint has no tensor 'other'"));
}

TEST_CASE("a full disk is an error, and what was whole stays whole") {
  Saved saved;
  saved.save(1);
  for (const int64_t room : {0, 100, 1000, 900'000, 1'684'400}) {
    FullDisk disk(room);
    checkpoint::CheckpointStore store(saved.store.folder(), "", disk);
    const std::string error =
        error_of([&] { save_state(store, make_state(2), {.tensor = 2}, 2, 2, disk); });
    INFO(room << ": " << error);
    CHECK(error.starts_with("cannot write " + saved.store.folder() + "/step-00000002.partial/"));
    CHECK(error.ends_with(
        ": No space left on device; free some space there or give another folder with --run-dir"));
    CHECK(saved.store.latest() == "step-00000001");
    load_state(saved.path("step-00000001"), make_state(1), {});
  }
  saved.store.clean();
  CHECK(std::distance(fs::directory_iterator(saved.store.folder()), {}) == 2);
}

TEST_CASE("a checkpoint that lacks a rank's part is not made whole") {
  Saved saved;
  const RankState mine = rank_state(make_state(1), {.tensor = 2}, 0);
  checkpoint::RankShards shards(0, mine.pieces);
  shards.copy();
  shards.write(saved.store.begin(1), 1, files::system_file_calls());
  CHECK(error_of([&] { saved.store.commit(1, 2, 1, {}); }) ==
        saved.path("step-00000001.partial/part-00001.json: cannot be read"));
  CHECK(error_of([&] { saved.store.commit(1, 1, 1, {}); }) ==
        saved.path("step-00000001.partial/manifest.json: tensor 'head.weight': the parts cover "
                   "210700 of 420700 elements"));
}

TEST_CASE("saving in the background: the memory may change as soon as start() returns") {
  Saved saved;
  saved.store.clean();
  const std::vector<StateTensor> state = make_state(1);
  RankState mine = rank_state(state, {}, 0);
  checkpoint::CheckpointWriter writer(saved.store, 0, mine.pieces);
  writer.start(1);
  for (std::vector<float>& values : mine.memory) std::fill(values.begin(), values.end(), -1.0F);
  writer.then([&] { saved.store.commit(1, 1, 1, {}); });
  writer.wait();
  CHECK(writer.done());
  load_state(saved.path("step-00000001"), state, {});
}

TEST_CASE("a save that fails in the background is heard of, once") {
  Saved saved;
  saved.store.clean();
  FullDisk disk(5000);
  RankState mine = rank_state(make_state(1), {}, 0);
  checkpoint::CheckpointWriter writer(saved.store, 0, mine.pieces, disk);
  writer.start(1);
  const std::string error = error_of([&] { writer.wait(); });
  CHECK(error.find("No space left on device") != std::string::npos);
  CHECK(writer.done());
  writer.start(1);
  const auto poll = [&] {
    while (!writer.done()) {
    }
  };
  CHECK(error_of(poll).find("No space left on device") != std::string::npos);
}

}  // namespace smp
